"""With replicas that must confirm, no job of a key starts before they have the outcome of the one before it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

import qbull
from conftest import eventually, every_fault
from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.record import Ending, ExtendedBody, append_ending, pack
from qbull.store.read.inspect import counts
from qbull.store.store import Store
from qbull.store.verbs.partition import NewJob
from qbull.worker.process.channel import TimedOutJob
from qbull.worker.process.reclaimer import Reclaimer
from topology import PASSWORD, Node, Pair, raised_pair, wait_for

pytestmark = [pytest.mark.xdist_group("confirm"), pytest.mark.timeout(120)]

INDEX = "{test:work:0}:index"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with raised_pair(tmp_path) as pair:
        yield pair


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    node.kill(signal.SIGSTOP)
    try:
        yield
    finally:
        node.kill(signal.SIGCONT)


class Gateway:
    """An address that leads to one server now and to another after a failover, as a name in DNS does."""

    def __init__(self, node: Node) -> None:
        self.node: Node | None = node
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Gateway]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.lead_to(None)

    def lead_to(self, node: Node | None) -> None:
        self.node = node
        for writer in list(self._open):
            writer.close()

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        if self.node is None:
            client_out.close()
            return
        try:
            server_in, server_out = await asyncio.open_connection("127.0.0.1", self.node.port)
        except OSError:
            client_out.close()
            return
        self._open |= {client_out, server_out}
        with suppress(asyncio.CancelledError):  # the test is over
            await asyncio.gather(_pump(client_in, server_out), _pump(server_in, client_out))
        self._open -= {client_out, server_out}


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


class Steps:
    """Jobs of one key that end when the test lets them, and the order in which they started."""

    def __init__(self, queue: qbull.Queue) -> None:
        self.queue = queue
        self.started: list[int] = []
        self.may_end: dict[int, asyncio.Event] = {}

        @queue.task(key="one key")
        async def step(n: int) -> None:
            self.started.append(n)
            await self.event(n).wait()

        self.step = step

    def event(self, n: int) -> asyncio.Event:
        return self.may_end.setdefault(n, asyncio.Event())

    async def enqueue(self, *numbers: int) -> list[str]:
        return [job.id for job in await self.step.enqueue_many([{"n": n} for n in numbers])]

    async def until_started(self, n: int) -> None:
        async def has_started() -> bool:
            return n in self.started

        await eventually(has_started, within=60)

    async def until_completed(self, id: str) -> None:
        async def is_completed() -> bool:
            return await self.queue.job(id).state() == "completed"

        await eventually(is_completed, within=30)


def waits(node: Node) -> int:
    """How often somebody has asked this server whether its replicas have everything."""
    stats = node.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("wait", "waitaof"))


async def until_asked(node: Node, steps: Steps, n: int) -> None:
    """Until a worker waits for the replicas once more, or has started job `n` without."""
    before = waits(node)

    async def is_asked() -> bool:
        return n in steps.started or waits(node) > before

    await eventually(is_asked, within=30)


def has_outcome(node: Node, id: str) -> bool:
    return bool((node.tell("HGET", INDEX, id) or b"").startswith(b"c"))


async def run_up_to(steps: Steps, number: int) -> str:
    """Job 1 leaves alone, the others as a train when it ends. Returns the id of job `number`, which has started."""
    ids = await steps.enqueue(1, 2, 3)
    for n in range(1, number):
        steps.event(n).set()
    await steps.until_started(number)
    return ids[number - 1]


@pytest.mark.parametrize("durability", ["replicated", "strict"])
@pytest.mark.parametrize("number", [1, 2], ids=["alone", "in a train"])
async def test_the_next_job_of_a_key_waits_until_the_replica_has_the_outcome_of_this_one(
    pair: Pair, durability: Durability, number: int
) -> None:
    (replica,) = pair.replicas
    app = qbull.App(pair.url, prefix="test", durability=durability)
    steps = Steps(app.queue("work", order="key"))
    async with app.worker():
        id = await run_up_to(steps, number)

        with frozen(replica):
            steps.event(number).set()
            await steps.until_completed(id)
            await until_asked(pair.primary, steps, number + 1)
            assert number + 1 not in steps.started

        await steps.until_started(number + 1)
        assert has_outcome(replica, id)
        for n in (2, 3):
            steps.event(n).set()
    assert await every_fault(app._client().store) == []
    await app.close()


async def test_the_next_job_of_a_key_waits_until_the_server_itself_has_the_outcome_of_this_one(
    pair: Pair,
) -> None:
    app = qbull.App(pair.url, prefix="test", durability="durable")
    work = app.queue("work", order="key")
    ids = [f"job-{n}" for n in range(50)]
    ahead: list[int] = []
    done = asyncio.Event()

    @work.task(key="one key", id="job-{n}")
    async def quick(n: int) -> None:
        if n > 0 and not has_outcome(pair.primary, ids[n - 1]):
            ahead.append(n)
        if n + 1 == len(ids):
            done.set()

    await quick.enqueue_many([{"n": n} for n in range(len(ids))])
    async with app.worker():
        async with asyncio.timeout(60):
            await done.wait()
    assert ahead == []
    assert await every_fault(app._client().store) == []
    await app.close()


@pytest.mark.parametrize("number", [1, 2], ids=["alone", "in a train"])
async def test_after_a_failover_no_job_runs_again_behind_a_later_one_of_its_key(
    tmp_path: Path, number: int
) -> None:
    with raised_pair(tmp_path) as pair:
        old, (new,) = pair.primary, pair.replicas
        async with Gateway(old).running() as gateway:
            url = f"redis://:{PASSWORD}@127.0.0.1:{gateway.port}/0?replicas=1"
            app = qbull.App(url, prefix="test", durability="replicated")
            steps = Steps(app.queue("work", order="key"))
            async with app.worker():
                id = await run_up_to(steps, number)

                # The replica is cut off, so that it never gets the outcome of this job.
                new.tell("REPLICAOF", "NO", "ONE")
                steps.event(number).set()
                await steps.until_completed(id)
                await until_looked(old, steps, number + 1)
                gateway.lead_to(None)
                old.kill()
                assert not has_outcome(new, id)

                # The worker has found the new primary, and read all that it has there, before that has a replica.
                new.tell("CONFIG", "RESETSTAT")
                gateway.lead_to(new)
                await eventually(lambda: has_read_all_again(new), within=60)
                assert number + 1 not in steps.started
                old.start()
                wait_for(old.answers)
                old.tell("REPLICAOF", "127.0.0.1", new.port)
                for n in (2, 3):
                    steps.event(n).set()
                await eventually(lambda: is_empty(steps.queue), within=60)

            # It has run again, unless its outcome was on its way and has reached the new primary instead.
            assert steps.started in ([1, 2, 3], sorted([1, 2, 3, number]))
            assert await every_fault(app._client().store) == []
            await app.close()


async def until_looked(node: Node, steps: Steps, n: int) -> None:
    """Until a worker has looked at the replicas, and found none, or has started job `n` without."""
    node.tell("CONFIG", "RESETSTAT")

    async def has_looked() -> bool:
        return n in steps.started or "cmdstat_role" in node.info("commandstats")

    await eventually(has_looked, within=30)


async def has_read_all_again(node: Node) -> bool:
    """Both streams of the partition twice, and the blocking read between them."""
    return bool(node.info("commandstats").get("cmdstat_xreadgroup", {"calls": 0})["calls"] >= 5)


async def is_empty(queue: qbull.Queue) -> bool:
    return (await queue.stats()).unfinished == 0


@pytest.mark.parametrize("durability", ["replicated", "strict", None])
async def test_the_timeout_that_a_supervisor_records_for_a_dead_process_is_confirmed(
    pair: Pair, durability: Durability | None
) -> None:
    """A failover could lose it otherwise, and the hung job would run again without a counted attempt."""
    store = Store(pair.url, "test")
    settings = QueueSettings("work", order="key", partitions=1)
    await store.register(settings, ["step"])
    partition = store.partition(settings, 0)
    record = pack(ExtendedBody("step", b"{}"), priority=5, lane=b"k")
    await partition.enqueue([NewJob("j1", 0, record)])
    streams = await store.streams([partition])
    await store.ensure_groups(streams)
    [delivery] = await store.fetch(streams, "dead", 1, None)
    position = delivery.job(0).position
    ending = append_ending(Ending(1, 0.0, "dead", error="it ran longer than its timeout of 1 s"))
    timed_out = TimedOutJob(
        "work",
        0,
        position.delivery,
        position.lane,
        position.number,
        position.last,
        b"j1",
        record,
        None,
        ending,
    )
    before = waits(pair.primary)

    await Reclaimer(store, [settings], 30.0).settle_timed_out(timed_out, durability)

    assert (waits(pair.primary) > before) == (durability is not None)
    assert (await counts([partition]))[0].failed == 1
    await store.close()
