"""Garbage that another program writes straight into the names of a queue: a dead letter or a line, never a stuck worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbull
from conftest import eventually, every_fault, strays
from qbull.core.record import STATES, Body, pack
from qbull.store.store import Store

BASE = "{test:work:0}:"
LANES = st.sampled_from([b"", b"12345678", b"123456789"])


class VandalizedQueue:
    """A queue with a worker, on a server that others write to as well."""

    def __init__(self, app: qbull.App, store: Store, order: str | None) -> None:
        self.app, self.store = app, store
        self.queue = app.queue("work", order=order, concurrency=4, retry=qbull.Retry(delays=(0.01,)))  # type: ignore[arg-type]
        self.good = self.queue.task(name="good")(good)
        self.queue.task(name="bad")(bad)

    async def add(self, *fields: bytes, level: str = "5") -> None:
        await self.store.server.call("XADD", f"{BASE}ready:{level}", "*", *fields)

    async def works(self) -> None:
        """Good jobs still run."""
        jobs = [await self.good.enqueue(n=n) for n in range(3)]
        assert [await job.result(timeout=20) for job in jobs] == [0, 1, 2]

    async def all_read(self) -> bool:
        call = self.store.server.call
        return await call("XLEN", BASE + "ready:5") + await call("XLEN", BASE + "ready:0") == 0

    async def every_page_can_be_read(self) -> None:
        for state in STATES:
            await self.queue.jobs(state, start=0, end=100)
        await self.queue.failures()


async def good(n: int) -> int:
    return n


async def bad(n: int) -> None:
    raise ValueError("bad")


@asynccontextmanager
async def vandalized_queue(url: str, order: str | None) -> AsyncIterator[VandalizedQueue]:
    store = Store(url, "test")
    await store.open()
    await store.server.call("FLUSHALL")
    app = qbull.App(url, prefix="test")
    vandalized = VandalizedQueue(app, store, order)
    async with app.worker():
        yield vandalized
    faults = await every_fault(store) + await strays(store)
    await app.close()
    await store.close()
    assert faults == []


def record(task: str, lane: bytes, head: bytes, cut: int) -> bytes:
    """One as qbull writes it, with some bytes of its header changed, and cut off."""
    whole = pack(Body(task, b'{"n": 1}'), priority=5, lane=lane)
    return (whole[:2] + head + whole[2 + len(head) :])[:cut]


records = st.builds(
    record, st.sampled_from(["good", "bad", "os.system"]), LANES, st.binary(max_size=8), st.integers(0, 60)
)
values = st.one_of(
    st.binary(max_size=80), records, st.just(b"x" * 3_000_000), LANES.map(lambda lane: lane + b"a\nb")
)
odd_names = st.one_of(
    st.sampled_from([b"", b"\n", b"known", b"\xff\xfe", b"a\nb", b" "]), st.binary(max_size=20)
)
entries = st.lists(st.tuples(odd_names, values), min_size=1, max_size=3)
some = st.lists(st.tuples(entries, st.sampled_from("50")), min_size=1, max_size=5)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of what has failed
@pytest.mark.parametrize("order", [None, "key", "partition"])
def test_whatever_is_written_into_the_stream_the_worker_goes_on(server_url: str, order: str | None) -> None:
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(some)
    def vandals(garbage: list[tuple[list[tuple[bytes, bytes]], str]]) -> None:
        asyncio.run(write(garbage))

    async def write(garbage: list[tuple[list[tuple[bytes, bytes]], str]]) -> None:
        async with vandalized_queue(server_url, order) as here:
            await here.good.options(id="known", delay=100).enqueue(n=0)

            for number, (pairs, level) in enumerate(garbage):
                # A well-formed record is a job that somebody has forged: such a one has an id of its own here.
                await here.add(
                    *(part for name, value in pairs for part in (name_of(name, value, number), value)),
                    level=level,
                )

            await here.works()
            await eventually(here.all_read)
            await here.every_page_can_be_read()

    vandals()


def name_of(name: bytes, value: bytes, number: int) -> bytes:
    return b"forged-%d" % number if value[:2] == b"\1\5" else name


async def test_a_record_that_is_no_record_is_a_dead_letter_that_keeps_all_of_it(server_url: str) -> None:
    async with vandalized_queue(server_url, "key") as here:
        await here.add(b"task", b"send", b"to", b"bob")
        await here.add(b"\n", b"\0\1\1" + bytes(7) + b"\x08")

        async def both_are_dead() -> bool:
            return (await here.queue.stats()).failed == 2

        await eventually(both_are_dead)
        letters = {letter.id: letter for letter in await here.queue.jobs("failed", start=0, end=10)}
        assert letters["task"].payload == "fields task send to bob"
        assert any(id.startswith("foreign-") for id in letters)


@pytest.mark.parametrize("name", ["ready:5", "index", "delayed", "completed"])
async def test_something_of_the_wrong_type_is_said_and_stops_its_own_queue_only(
    server_url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with vandalized_queue(server_url, None) as here:
        await here.works()
        if name != "delayed":
            await here.store.server.call("RENAME", BASE + name, BASE + "away")
        await here.store.server.call("SET", BASE + name, "not ours")

        said = await lines_about(here, caplog)
        assert f'wrong type under "{BASE}' in said and '"qbull doctor" says what' in said
        other = here.app.queue("other").task(name="good")(good)
        async with here.app.worker(queues=["other"]):
            assert await (await other.enqueue(n=7)).result(timeout=20) == 7

        if name == "delayed":
            await here.store.server.call("DEL", BASE + name)
        else:  # in one step: the worker may write in between
            await here.store.server.call("RENAME", BASE + "away", BASE + name)
        await here.works()
        await eventually(here.all_read)


async def lines_about(here: VandalizedQueue, caplog: pytest.LogCaptureFixture) -> str:
    """What whoever enqueues is told, or else what the worker says."""
    caplog.set_level(logging.ERROR, "qbull.worker")
    try:
        await here.good.options(delay=0.01).enqueue(n=1)
        await here.good.enqueue(n=2)
    except qbull.QbullError as error:
        return str(error)

    async def heard() -> str:
        return next((line for line in caplog.messages if "wrong type" in line), "")

    found: str = await eventually(heard)
    return found


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "__class__", "good.__globals__", "../good", ""]
)
async def test_a_job_names_only_what_the_worker_has_registered(server_url: str, name: str) -> None:
    async with vandalized_queue(server_url, None) as here:
        await here.add(b"forged", pack(Body(name, b'{"n": 1}'), priority=5, lane=b""))

        job = here.app.job("work", "forged")

        async def waits() -> bool:
            return "no-task" in [reason.code for reason in (await job.why()).reasons]

        await eventually(waits)
        assert await job.cancel()
