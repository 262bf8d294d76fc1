"""The client: what an app has on one event loop. Connections, batches and subscriptions belong to a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.layout import Layout
from qbull.errors import ConfigError, NotConfirmed, QbullError
from qbull.offload import ResultStore
from qbull.store import inspect
from qbull.store.batch import Batcher
from qbull.store.inspect import Found
from qbull.store.partition import BATCH, NewJob, Partition, UniqueJob
from qbull.store.results import Results
from qbull.store.store import Store

if TYPE_CHECKING:
    from qbull.postgres.outbox import Outbox

A = TypeVar("A")


class Placed(NamedTuple):
    """A job, and the partition that it goes to.

    `lane` is what must stay together: its key, where the queue has lanes. `given` is an id that the producer chose.
    """

    number: int
    job: NewJob
    lane: bytes | None = None
    given: bool = False


class Client:
    def __init__(self, url: str, prefix: str, stored: ResultStore | None = None) -> None:
        self.store = Store(url, prefix)
        self.stored = stored
        self.results = Results(self.store)
        self._batchers: dict[tuple[str, int, Durability | None], Batcher[NewJob, bool]] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._registered: dict[tuple[str, Durability | None], int] = {}
        self._registering = asyncio.Lock()
        self._layouts: dict[str, Layout] = {}
        self._outbox: Outbox | None = None

    def partition(self, settings: QueueSettings, number: int) -> Partition:
        name = (settings.name, number)
        if name not in self._partitions:
            self._partitions[name] = self.store.partition(settings, number)
        return self._partitions[name]

    async def partitions(self, settings: QueueSettings) -> list[Partition]:
        """All that may have jobs of the queue now, the oldest first: who looks in this order misses none that moves."""
        layout = await self.layout(settings)
        return [self.partition(settings, n) for generation in layout.generations for n in generation.numbers]

    async def layout(self, settings: QueueSettings) -> Layout:
        """As the server says now."""
        layout = await self.store.patiently(partial(self.store.layout, settings))
        self._layouts[settings.name] = layout
        return layout

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
                register = partial(self.store.register, settings, list(tasks), durability)
                layout = self._layouts[settings.name] = await self.store.patiently(register)
                self._registered[settings.name, durability] = len(tasks)
            return layout

    async def enqueue(
        self, settings: QueueSettings, placed: Placed, durability: Durability | None = None
    ) -> bool:
        """Add one job, together with others on their way that are to be as safe; answers whether it was new."""
        batcher = self._batchers.get((settings.name, placed.number, durability))
        if batcher is None:
            partition = self.partition(settings, placed.number)
            batcher = self._batchers[settings.name, placed.number, durability] = Batcher(
                lambda jobs: self._send(partition, jobs, durability),
                BATCH,
                in_order=settings.lane_limit > 0,
            )
        return await batcher.add(placed.job)

    async def enqueue_many(
        self, settings: QueueSettings, jobs: Sequence[Placed], durability: Durability | None = None
    ) -> list[bool]:
        """Add many jobs in few calls; those of one partition in the order given."""
        created = [False] * len(jobs)
        places: dict[int, list[int]] = {}
        for at, placed in enumerate(jobs):
            places.setdefault(placed.number, []).append(at)
        for number, all_of_it in sorted(places.items()):
            for start in range(0, len(all_of_it), BATCH):
                some = all_of_it[start : start + BATCH]
                sent = await self._send(
                    self.partition(settings, number), [jobs[at].job for at in some], durability
                )
                for at, answer in zip(some, sent, strict=True):
                    created[at] = answer
        return created

    async def enqueue_unique(
        self,
        settings: QueueSettings,
        jobs: Sequence[tuple[int, UniqueJob]],
        durability: Durability | None = None,
    ) -> list[tuple[str, bool]]:
        """Add those that count; for each the id of the job that counts, and whether it is new."""
        answers: list[tuple[str, bool]] = [("", False)] * len(jobs)
        places: dict[int, list[int]] = {}
        for at, (number, _) in enumerate(jobs):
            places.setdefault(number, []).append(at)
        confirmed = self.store.confirmed(durability) if durability is not None else None
        for number, all_of_it in sorted(places.items()):
            partition = self.partition(settings, number)
            for start in range(0, len(all_of_it), BATCH):
                some = all_of_it[start : start + BATCH]
                batch = [jobs[at][1] for at in some]
                try:
                    sent = await self.store.patiently(partial(partition.unique, batch, confirmed))
                except NotConfirmed as error:
                    raise error.of(settings.name, *(job.id for job in batch)) from None
                for at, answer in zip(some, sent, strict=True):
                    answers[at] = answer
        return answers

    async def find(self, settings: QueueSettings, id: str) -> tuple[Partition, Found] | None:
        async for partition in self._likely(settings, id):
            found = await self.store.patiently(partial(inspect.find, partition, id))
            if found is not None:
                return partition, found
        return None

    async def at_job(
        self, settings: QueueSettings, id: str, verb: Callable[[Partition], Awaitable[str]]
    ) -> str:
        """Do something with a job in the partition that it is in; "unknown" where none knows it."""
        async for partition in self._likely(settings, id):
            word = await self.store.patiently(partial(verb, partition))
            if word != "unknown":
                return word
        return "unknown"

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
        if self._outbox is not None:
            await self._outbox.close()
        await self.results.close()
        await self.store.close()

    async def _likely(self, settings: QueueSettings, id: str) -> AsyncIterator[Partition]:
        """One look for an id that was made here; others are looked for in their likeliest partition first."""
        layout = self._layouts.get(settings.name) or await self.layout(settings)
        first = self.partition(settings, layout.home_of_id(id))
        yield first
        for partition in await self.partitions(settings):
            if partition is not first or layout.older:  # it may have come there meanwhile
                yield partition

    async def _send(
        self, partition: Partition, jobs: Sequence[NewJob], durability: Durability | None
    ) -> list[bool]:
        confirmed = self.store.confirmed(durability) if durability is not None else None
        try:
            known = await self.store.patiently(lambda: partition.enqueue(jobs, confirmed))
        except NotConfirmed as error:
            raise error.of(partition.settings.name, *(job.id for job in jobs)) from None
        return [position not in known for position in range(len(jobs))]


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
