"""Draining RQ: jobs that RQ itself has written, moved each once; and pickles that are not read."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pickle
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
import rq
from hypothesis import given
from hypothesis import strategies as some
from producers import Killed, Mortal, Old, move, open_old, open_old_server  # noqa: F401 - two are fixtures

import qbull
from qbull.compat.rq import Queue
from qbull.drain.message import CannotMove
from qbull.drain.move import DrainReport
from qbull.drain.pickles import ALLOWED_CLASSES, MAX_UNPACKED_BYTES, read, unpacked
from qbull.drain.rq import RqSource
from qbull.drain.source import SourceServer

ran: list[Any] = []


def note(x: Any, y: Any = 0) -> None:
    ran.append((x, y))


def book(when: datetime, price: Decimal) -> None:
    ran.append((when, price))


def break_down() -> None:
    ran.append(qbull.current_job().attempt)
    raise ValueError("broken")


def keep_result(job: Any, connection: Any, result: Any) -> None:
    ran.append("succeeded")


def keep_error(job: Any, connection: Any, kind: type, value: Any, traceback: Any) -> None:
    ran.append(kind.__name__)


NOTE = f"{__name__}.note"


class NewApp:
    def __init__(self, url: str) -> None:
        ran.clear()
        self.app = qbull.App(url, prefix="test")
        self.app.queue("default", keep=qbull.Keep(completed=0, failed=100), retry=qbull.Retry(attempts=1))
        self.shim = Queue("default", connection=self.app)
        self.shim.register(note, book, break_down)

    async def move(self, source: RqSource, *, dry: bool = False, **options: Any) -> DrainReport:
        return await move(self.app, source, dry=dry, **options)

    async def work(self) -> None:
        async with self.app.worker() as worker:
            await worker.drain()


@pytest.fixture
async def new(server_url: str, store: Any) -> AsyncIterator[NewApp]:
    new = NewApp(server_url)
    yield new
    await new.app.close()
    await asyncio.to_thread(new.app.close_sync)


def source(old: Old) -> RqSource:
    return RqSource(SourceServer(old.url, "rq"))


async def test_what_rq_has_written_is_run_here(old: Old, new: NewApp) -> None:
    queue = old.rq()
    jobs = [queue.enqueue(NOTE, n, y=[n, {"a": None}]) for n in range(120)]
    typed = queue.enqueue(
        f"{__name__}.book", datetime(2026, 1, 2, tzinfo=UTC), price=Decimal("9.90"), job_timeout=40
    )

    report = await new.move(source(old))
    info = await new.app.job("default", typed.id).info()
    await new.work()

    # Plain functions run in threads: the last one may overtake those before it.
    booked = (datetime(2026, 1, 2, tzinfo=UTC), Decimal("9.90"))
    assert ran.count(booked) == 1
    assert sorted(one for one in ran if one != booked) == [(n, [n, {"a": None}]) for n in range(120)]
    assert info is not None and info.id == typed.id
    assert (report.moved["default"], report.left.total(), len(jobs)) == (121, 0, 120)
    assert old.left() == set()


async def test_what_is_for_later_and_what_may_run_again_stays_so(old: Old, new: NewApp) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    later = old.rq().enqueue_at(at, NOTE, 1)
    old.rq().enqueue(f"{__name__}.break_down", retry=rq.Retry(max=2, interval=0))
    as_json = old.rq(serializer="json").enqueue_in(timedelta(hours=1), NOTE, 2, ttl=7200)

    await new.move(source(old))
    first, second = [await new.app.job("default", job.id).info() for job in (later, as_json)]
    for job in (later, as_json):
        await new.app.job("default", job.id).cancel()
    await new.work()

    assert first is not None and second is not None
    assert first.due_at == at
    assert second.payload == {"x": 2}
    assert second.expires_at is not None and second.due_at is not None and second.expires_at > second.due_at
    assert ran == [1, 2, 3]
    assert old.left() == set()


async def test_callbacks_and_repeats_move_with_their_job(old: Old, new: NewApp) -> None:
    new.shim.register_callbacks(keep_result, keep_error)
    old.rq().enqueue(NOTE, 1, on_success=rq.Callback(keep_result), repeat=rq.Repeat(times=2, interval=0))
    old.rq().enqueue(f"{__name__}.break_down", on_failure=rq.Callback(keep_error))

    report = await new.move(source(old))
    await new.work()

    assert (report.moved["default"], report.left.total()) == (2, 0)
    assert (ran.count((1, 0)), ran.count("succeeded"), ran.count("ValueError")) == (3, 3, 1)
    assert old.left() == set()


@pytest.mark.parametrize(("times", "interval"), [(3, [10, 30, 60]), (5, [10, 30]), (2, 7)])
async def test_repeats_that_are_left_have_the_intervals_of_rq(old: Old, times: int, interval: Any) -> None:
    theirs = old.rq().enqueue(NOTE, 1, repeat=rq.Repeat(times=times, interval=interval))
    expected = [rq.Repeat.get_interval(left - 1, theirs.repeat_intervals) for left in range(times, 0, -1)]
    rq_source = source(old)

    [collection, _] = await rq_source.collections("default")
    _, [message] = await rq_source.page(collection, 0)
    job = rq_source.job(message.stored)
    await rq_source.old.close()

    assert job.headers == {"rq.repeat": ",".join(map(str, expected))}


async def test_repeats_of_a_task_that_is_not_of_the_shim_stay(old: Old, new: NewApp) -> None:
    old.rq().enqueue(NOTE, 1, repeat=rq.Repeat(times=2, interval=0))
    plain = qbull.App(new.app.url, prefix="test")
    plain.queue("default").task(name=NOTE)(note)

    report = await move(plain, source(old))
    await plain.close()

    [(_, _, why)] = report.left
    assert "is no function of qbull.compat.rq" in why


async def test_what_cannot_be_moved_stays_and_is_named(old: Old, new: NewApp) -> None:
    queue = old.rq()
    first = queue.enqueue(NOTE, 1)
    queue.enqueue(NOTE, 2, depends_on=first)
    queue.enqueue(NOTE, 3, meta={"who": "ann"})
    queue.enqueue(NOTE, 4, on_failure=rq.Callback(f"{__name__}.report"))
    queue.enqueue(NOTE, PurePosixPath("/tmp"))
    queue.enqueue("os.system", "true")
    queue.enqueue(NOTE, 5)
    gone = queue.enqueue(NOTE, 6)
    old.redis.delete(f"rq:job:{gone.id}")
    before = old.redis.lrange("rq:queue:default", 0, -1)

    dry = await new.move(source(old), dry=True)
    report = await new.move(source(old))
    await new.work()

    assert ran == [(5, 0)]
    assert (dry.moved, dry.left) == (report.moved, report.left)
    reasons = " | ".join(why for _, _, why in report.left)
    for word in (
        "1 jobs wait for it (depends_on)",
        "it has meta",
        f'its callback "{__name__}.report" is not registered',
        "its arguments have a pathlib.PurePosixPath, which is not plain data",
        'no task "os.system" is declared',
        "its record is gone",
    ):
        assert word in reasons
    assert len(old.redis.lrange("rq:queue:default", 0, -1)) == len(before) - 1 == 6


async def test_an_id_that_was_used_again_is_another_job(old: Old, new: NewApp) -> None:
    for n in range(3):
        old.rq().enqueue(NOTE, n, job_id="daily")
        await new.move(source(old))
        await new.work()

    assert ran == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("heard", [False, True], ids=["before it is sent", "before it is answered"])
async def test_a_drain_that_dies_at_any_command_goes_on_and_each_runs_once(
    old: Old, new: NewApp, heard: bool
) -> None:
    deaths = 0
    async with new.app.worker() as worker:
        for at in range(1, 100):
            for n in range(2):
                old.rq().enqueue(NOTE, at, n)
            dying = Mortal(old.url, "rq", at, heard=heard)
            try:
                await new.move(RqSource(dying))
            except Killed:
                deaths += 1
                await worker.drain()
            await new.move(source(old))
            if dying.left > 0:
                break
        await worker.drain()

    assert deaths >= 8
    assert sorted(ran) == [(x, n) for x in range(1, deaths + 2) for n in range(2)]
    assert old.left() == set()


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/qbull-was-here",)


@pytest.mark.parametrize("value", [Bomb(), [1, {"a": Bomb()}], print, UUID])
def test_a_pickle_that_is_more_than_data_is_refused(value: Any) -> None:
    with pytest.raises(CannotMove, match=r"which is not plain data|cannot be read"):
        read(pickle.dumps(value, protocol=5))

    assert not os.path.exists("/tmp/qbull-was-here")


@pytest.mark.parametrize("kind", sorted(ALLOWED_CLASSES))
def test_a_pickle_cannot_change_a_class(kind: tuple[str, str]) -> None:
    module, name = kind
    sets_an_attribute = f"c{module}\n{name}\n".encode() + b"(N}X\x01\x00\x00\x00xK\x01stb."

    with pytest.raises(CannotMove):
        read(b"\x80\x04" + sets_an_attribute)

    assert not hasattr(ALLOWED_CLASSES[kind], "x")


def doubling(levels: int, key: bool) -> bytes:
    """A pickle of a tuple of two tuples of two tuples …, all of them the same; perhaps as a dictionary's key."""
    program = b"\x80\x04" + (b"}" if key else b"") + b")q\x00"
    for n in range(levels):
        program += b"h%c\x86q%c" % (n, n + 1)
    return program + (b"Ns." if key else b".")


@pytest.mark.parametrize(
    "bomb",
    [
        doubling(40, key=True),
        doubling(40, key=False),
        b"\x80\x04Nr\xff\xff\xff\x0f.",
        b"\x80\x04N2" + b"2" * 100 + b".",
        b"\x80\x04]q\x00" + b"h\x00a" * 100 + b".",
    ],
    ids=["doubled key", "doubled value", "a note far away", "copies", "a list of itself"],
)
def test_a_few_bytes_take_neither_time_nor_memory(bomb: bytes) -> None:
    with pytest.raises(CannotMove, match="would take too much memory"):
        read(bomb)


def test_values_that_are_used_again_are_read_as_they_were() -> None:
    zone, shared = timezone(timedelta(hours=2)), ["a", "b"]
    times = [datetime(2030, 1, n + 1, tzinfo=zone) for n in range(20)]
    value = {"times": times, "again": times[3:9], "one": shared, "two": shared, "name": ["same"] * 50}

    assert read(pickle.dumps(value, protocol=5)) == value
    assert read(pickle.dumps(value, protocol=4)) == value


plain = some.recursive(
    some.one_of(
        some.none(),
        some.booleans(),
        some.integers(),
        some.floats(allow_nan=False),
        some.text(),
        some.binary(),
        some.datetimes(timezones=some.sampled_from([None, UTC, timezone(timedelta(hours=-3))])),
        some.dates(),
        some.timedeltas(),
        some.decimals(allow_nan=False),
        some.uuids(),
    ),
    lambda inner: some.one_of(
        some.lists(inner), some.dictionaries(some.text(), inner), some.tuples(inner, inner)
    ),
    max_leaves=8,
)


@given(plain)
def test_plain_data_is_read_as_it_was(value: Any) -> None:
    assert read(pickle.dumps(value, protocol=5)) == value
    assert read(pickle.dumps(OrderedDict(a=value), protocol=5)) == {"a": value}


@given(some.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(CannotMove):
        read(b"\x80\x05" + data)


def test_what_unpacks_to_too_much_is_refused() -> None:
    packed = io.BytesIO()
    packer = zlib.compressobj()
    for _ in range(MAX_UNPACKED_BYTES // (1 << 20) + 1):
        packed.write(packer.compress(bytes(1 << 20)))
    packed.write(packer.flush())

    with pytest.raises(CannotMove, match="take more than"):
        unpacked(packed.getvalue())
