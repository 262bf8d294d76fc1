"""The client: what an app has on one event loop. Connections, batches and subscriptions belong to a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from qbull.codecs.offload import ResultStore
from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.layout import Generation, Layout
from qbull.errors import ConfigError, NotConfirmed, QbullError, ServerAway
from qbull.store.batch import Batcher
from qbull.store.completions import ResultListener
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.fan_out import partitions_holding
from qbull.store.read import inspect
from qbull.store.read.inspect import StoredJob
from qbull.store.store import Store
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.layout import follow_successor
from qbull.store.verbs.partition import (
    MAX_JOBS_PER_CALL,
    NewJob,
    Partition,
    PartitionClosed,
    UniqueAnswer,
    UniqueJob,
)

if TYPE_CHECKING:
    from qbull.postgres.outbox import Outbox

A = TypeVar("A")

MOVING_JOB_TIMEOUT_SECONDS = 5.0
"""Seconds for which a job that is on its way to another partition is waited for."""
LAYOUT_REREAD_SECONDS = 60.0
"""Seconds after which it is asked again whether a queue still has older partitions."""


class PlacedJob(msgspec.Struct, frozen=True, gc=False):
    """A job, and the partition that it goes to.

    `together` is what it must stay together with: its key, where the queue has lanes. `given` is an id that the
    producer chose. `plain` is one that lua/put.lua takes.
    """

    number: int
    job: NewJob
    together: bytes | None = None
    given: bool = False
    plain: bool = False

    def home(self, generation: Generation) -> int:
        """The partition that it belongs to in a generation, where it is not any."""
        return generation.home_of(self.together, self.job.id)

    def moved(self, layout: Layout) -> PlacedJob:
        """The same job, to where it belongs now."""
        return msgspec.structs.replace(self, number=self.home(layout.current))


class Client:
    def __init__(self, url: str, prefix: str, stored: ResultStore | None = None) -> None:
        self.store = Store(url, prefix)
        self.stored = stored
        self.results = ResultListener(self.store)
        self.flows = FlowStore(self.store)
        self._batchers: dict[tuple[str, int, Durability | None], Batcher[PlacedJob, bool | None]] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._registered: dict[tuple[str, Durability | None], int] = {}
        self._registering = asyncio.Lock()
        self._layouts: dict[str, Layout] = {}
        self._declared: dict[str, QueueSettings] = {}
        self._read: dict[str, float] = {}
        self._outbox: Outbox | None = None

    def partition(self, settings: QueueSettings, number: int) -> Partition:
        name = (settings.name, number)
        found = self._partitions.get(name)
        if found is None or found.settings is not settings:
            found = self._partitions[name] = self.store.partition(settings, number)
        return found

    async def partitions(self, settings: QueueSettings) -> list[Partition]:
        """All that may have jobs of the queue now, the oldest first: who looks in this order misses none that moves.

        What is done with jobs that are there is done by the settings that the server has: whoever only steers a queue
        need not declare its order, and must not break it.
        """
        layout = await self.layout(settings)
        settings = self._declared[settings.name]
        return [self.partition(settings, n) for generation in layout.generations for n in generation.numbers]

    async def layout(self, settings: QueueSettings) -> Layout:
        """As the server says now."""
        self._declared[settings.name], layout = await self.store.known(settings)
        return self._keep(settings, layout)

    def totals(self, settings: QueueSettings, counted: dict[str, int]) -> dict[str, int]:
        """What was counted in the partitions that are there, and in those that are gone."""
        return self._layouts[settings.name].in_all(counted)

    def known(
        self, settings: QueueSettings, tasks: Collection[str], durability: Durability | None = None
    ) -> Layout | None:
        """Which partitions the queue has, where it was registered with these tasks before."""
        if self._registered.get((settings.name, durability)) == len(tasks):
            return self._layouts[settings.name]
        return None

    async def register(
        self, settings: QueueSettings, tasks: Collection[str], durability: Durability | None = None
    ) -> Layout:
        """Make the queue and its tasks known to the server, where this was not done yet; which partitions it has."""
        async with self._registering:  # one after the other, so that calls made at once stay in their order
            layout = self.known(settings, tasks, durability)
            if layout is None:
                layout = await self.store.register(settings, list(tasks), durability)
                self._keep(settings, layout)
                self._registered[settings.name, durability] = len(tasks)
                self._declared[settings.name] = settings
            return layout

    async def enqueue(
        self, settings: QueueSettings, placed: PlacedJob, durability: Durability | None = None
    ) -> bool:
        """Add one job, together with others on their way that are to be as safe; answers whether it was new."""
        while True:
            batcher = self._batchers.get((settings.name, placed.number, durability))
            if batcher is None:
                batcher = self._batcher(self.partition(settings, placed.number), durability)
            created = await batcher.add(placed)
            if created is not None:
                return created
            placed = placed.moved(self._layouts[settings.name])

    async def enqueue_many(
        self, settings: QueueSettings, jobs: Sequence[PlacedJob], durability: Durability | None = None
    ) -> list[bool]:
        """Add many jobs in few calls; those of one partition in the order given."""
        created: dict[int, bool] = {}
        left = list(range(len(jobs)))
        while left:
            for number, some in _batches((at, jobs[at].number) for at in left):
                sent = await self._send(
                    self.partition(settings, number), [jobs[at] for at in some], durability
                )
                created |= {at: new for at, new in zip(some, sent, strict=True) if new is not None}
            left = [at for at in left if at not in created]
            if left:
                jobs = [placed.moved(self._layouts[settings.name]) for placed in jobs]
        return [created[at] for at in range(len(jobs))]

    async def enqueue_unique(
        self,
        settings: QueueSettings,
        jobs: Sequence[tuple[PlacedJob, UniqueJob]],
        durability: Durability | None = None,
    ) -> list[tuple[str, bool]]:
        """Add those that count; for each the id of the job that counts, and whether it is new."""
        answers: dict[int, tuple[str, bool]] = {}
        asked = [job for _, job in jobs]
        until = asyncio.get_running_loop().time() + MOVING_JOB_TIMEOUT_SECONDS
        while len(answers) < len(jobs):
            layout, moving = self._layouts.get(settings.name) or await self.layout(settings), False
            for (
                generation
            ) in layout.generations:  # what counts in an older partition counts until its window ends
                left = [at for at in range(len(jobs)) if at not in answers]
                homes = ((at, _partition_of_unique(generation, *jobs[at])) for at in left)
                for number, some in _batches(homes):
                    partition = self.partition(settings, number)
                    found = await self._unique(partition, [asked[at] for at in some], durability)
                    for at, counting in zip(some, found, strict=True):
                        if counting.new is not None:
                            answers[at] = counting.id, counting.new
                        elif counting.id:
                            asked[at] = asked[at]._replace(
                                counts=counting.id, counts_ms=max(counting.left_ms, 1)
                            )
                        moving = moving or counting.moving
                if moving:
                    break
            if moving and asyncio.get_running_loop().time() > until:
                raise ServerAway(
                    f'queue "{settings.name}": a job does not arrive in its new partition; try again'
                )
            if moving:
                await asyncio.sleep(0.02)
        return [answers[at] for at in range(len(jobs))]

    async def find(self, settings: QueueSettings, id: str) -> tuple[Partition, StoredJob] | None:
        async for partition in self._likely(settings, id):
            found = await inspect.find(partition, id)
            if found is not None:
                return partition, found
        return None

    async def at_job(
        self, settings: QueueSettings, id: str, verb: Callable[[Partition], Awaitable[str]]
    ) -> str:
        """Do something with a job in the partition that it is in; "unknown" where none knows it.

        One that is on its way to another partition arrives there in a moment, and is not left alone meanwhile.
        """
        clock = asyncio.get_running_loop().time
        until, word = clock() + MOVING_JOB_TIMEOUT_SECONDS, "moving"
        while word == "moving" and clock() < until:
            async for partition in self._likely(settings, id):
                word = await verb(partition)
                if word != "unknown":
                    break
            if word == "moving":
                await asyncio.sleep(0.02)
        return word

    def outbox(self, database: str | None) -> Outbox:
        """The way into the outbox of an app without a transaction of the caller's."""
        if database is None:
            raise ConfigError(
                'durability="outbox": no database is named; set QBULL_DATABASE_URL, or App(database=…)'
            )
        if self._outbox is None:
            from qbull.postgres.outbox import Outbox

            self._outbox = Outbox(database)
        return self._outbox

    async def close(self) -> None:
        try:
            if self._outbox is not None:
                await self._outbox.close()
        finally:
            await self.results.close()
            await self.store.close()

    async def _likely(self, settings: QueueSettings, id: str) -> AsyncIterator[Partition]:
        """One look for an id that was made here; others are looked for in their likeliest partition first."""
        layout = self._layouts.get(settings.name) or await self.layout(settings)
        settings = self._declared.get(settings.name, settings)
        first = self.partition(settings, layout.home_of_id(id))
        yield first
        now = await self.layout(settings)
        for generation in now.generations:  # one after the other: what moves is in the later one first
            others = [self.partition(settings, number) for number in generation.numbers]
            if not layout.older and first in others:  # with older ones, it may have come there meanwhile
                others.remove(first)
            for partition in await partitions_holding(others, id):
                yield partition

    def _keep(self, settings: QueueSettings, layout: Layout) -> Layout:
        self._layouts[settings.name] = layout
        self._read[settings.name] = asyncio.get_running_loop().time()
        return layout

    async def _follow(self, settings: QueueSettings, successor: Generation) -> None:
        """A partition has said that its jobs go to a later generation now."""
        layout = await follow_successor(self.store, settings, successor)
        self._keep(settings, layout)

    def _batcher(
        self, partition: Partition, durability: Durability | None
    ) -> Batcher[PlacedJob, bool | None]:
        settings = partition.settings
        batcher: Batcher[PlacedJob, bool | None] = Batcher(
            lambda jobs: self._send(partition, jobs, durability),
            MAX_JOBS_PER_CALL,
            in_order=settings.lane_limit > 0,
        )
        self._batchers[settings.name, partition.number, durability] = batcher
        return batcher

    async def _send(
        self, partition: Partition, jobs: Sequence[PlacedJob], durability: Durability | None
    ) -> list[bool | None]:
        """For each whether it was new; None where the partition takes nothing in any more, and it is to go elsewhere."""
        settings = partition.settings
        confirmed = self.store.confirmed(durability) if durability is not None else None
        layout = self._layouts.get(settings.name) or await self.layout(settings)
        new: bool | None = True
        try:
            older = await self._in_older(settings, jobs, confirmed) if layout.older else set()
            sent = [placed for placed in jobs if placed.job.id not in older] if older else jobs
            verb = partition.put if all(placed.plain for placed in jobs) else partition.enqueue
            known = await verb([placed.job for placed in sent], confirmed) if sent else set()
        except NotConfirmed as error:
            raise error.of(settings.name, *(placed.job.id for placed in jobs)) from None
        except PartitionClosed as closed:
            known, new = closed.known, None
            await self._follow(settings, closed.successor)
        answers = [new] * len(sent)
        for n in known:  # an id that was made for this call is there because the call was sent before
            answers[n] = not sent[n].given
        if not older:
            return answers
        rest = iter(answers)
        return [False if placed.job.id in older else next(rest) for placed in jobs]

    async def _in_older(
        self, settings: QueueSettings, jobs: Sequence[PlacedJob], confirmed: ConfirmedServer | None
    ) -> set[str]:
        """Which of the ids that producers chose are in older partitions.

        These take nothing in any more: what is not there now never will be. And what moves from there is in its new
        partition first.
        """
        given = [placed for placed in jobs if placed.given]
        if not given:
            return set()
        if asyncio.get_running_loop().time() - self._read[settings.name] > LAYOUT_REREAD_SECONDS:
            await self.layout(settings)
        found: set[str] = set()
        for generation in self._layouts[settings.name].generations[:-1]:
            for number, some in _batches((at, placed.home(generation)) for at, placed in enumerate(given)):
                older = self.partition(settings, number)
                there = await older.has([given[at].job.id for at in some])
                if there and confirmed is not None:
                    await older.confirm(confirmed)
                found |= there
        return found

    async def _unique(
        self, partition: Partition, jobs: Sequence[UniqueJob], durability: Durability | None
    ) -> Sequence[UniqueAnswer]:
        settings = partition.settings
        confirmed = self.store.confirmed(durability) if durability is not None else None
        try:
            found = await partition.unique(jobs, confirmed)
        except NotConfirmed as error:
            raise error.of(settings.name, *(job.id for job in jobs)) from None
        except PartitionClosed as closed:
            if closed.successor.number > self._layouts[settings.name].generation:
                await self._follow(settings, closed.successor)
            return closed.counting
        return [UniqueAnswer(id, new, 0, False) for id, new in found]


def _partition_of_unique(generation: Generation, placed: PlacedJob, job: UniqueJob) -> int:
    return generation.home(placed.together or bytes.fromhex(job.name)[:8])


def _batches(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Positions and their partitions: each partition with its positions, a bounded number at a time, in order."""
    partitions: dict[int, list[int]] = {}
    for at, number in places:
        partitions.setdefault(number, []).append(at)
    for number, all_of_it in sorted(partitions.items()):
        for start in range(0, len(all_of_it), MAX_JOBS_PER_CALL):
            yield number, all_of_it[start : start + MAX_JOBS_PER_CALL]


class Portal:
    """An event loop in a thread of its own, for synchronous code. Calls of many threads gather into batches there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="qbull-portal", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, A]) -> A:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        coroutine.close()
        raise QbullError(
            "a synchronous call would block the running event loop; await the asynchronous one instead"
        )

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
