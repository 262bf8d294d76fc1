"""The client: what an app has on one event loop. Connections, batches and subscriptions belong to a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from qbull.config import QueueSettings
from qbull.core.ids import partition_in
from qbull.core.route import digest, partition_of
from qbull.errors import QbullError
from qbull.store import inspect
from qbull.store.batch import Batcher
from qbull.store.inspect import Found
from qbull.store.partition import BATCH, NewJob, Partition
from qbull.store.results import Results
from qbull.store.store import Store

A = TypeVar("A")


class Client:
    def __init__(self, url: str, prefix: str) -> None:
        self.store = Store(url, prefix)
        self.results = Results(self.store)
        self._batchers: dict[str, Batcher[NewJob, bool]] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._registered: dict[str, int] = {}

    def partition(self, settings: QueueSettings, number: int) -> Partition:
        name = (settings.name, number)
        if name not in self._partitions:
            self._partitions[name] = self.store.partition(settings, number)
        return self._partitions[name]

    async def register(self, settings: QueueSettings, tasks: Collection[str]) -> None:
        """Make the queue and its tasks known to the server, where this was not done yet."""
        if self._registered.get(settings.name) != len(tasks):
            await self.store.patiently(lambda: self.store.register(settings, list(tasks)))
            self._registered[settings.name] = len(tasks)

    async def enqueue(self, partition: Partition, job: NewJob) -> bool:
        """Add one job, together with others that are on their way; answers whether it was new."""
        batcher = self._batchers.get(partition.base)
        if batcher is None:
            batcher = self._batchers[partition.base] = Batcher(
                lambda jobs: self._send(partition, jobs), BATCH
            )
        return await batcher.add(job)

    async def enqueue_many(self, partition: Partition, jobs: Sequence[NewJob]) -> list[bool]:
        created: list[bool] = []
        for start in range(0, len(jobs), BATCH):
            created += await self._send(partition, jobs[start : start + BATCH])
        return created

    async def find(self, settings: QueueSettings, id: str) -> tuple[Partition, Found] | None:
        for partition in self._likely(settings, id):
            found = await self.store.patiently(partial(inspect.find, partition, id))
            if found is not None:
                return partition, found
        return None

    async def at_job(
        self, settings: QueueSettings, id: str, verb: Callable[[Partition], Awaitable[str]]
    ) -> str:
        """Do something with a job in the partition that it is in; "unknown" where none knows it."""
        for partition in self._likely(settings, id):
            word = await self.store.patiently(partial(verb, partition))
            if word != "unknown":
                return word
        return "unknown"

    async def close(self) -> None:
        await self.results.close()
        await self.store.close()

    def _likely(self, settings: QueueSettings, id: str) -> Iterator[Partition]:
        """One look for an id that was made here; others are looked for in their likeliest partition first."""
        likely = partition_in(id)
        if likely is None or likely >= settings.partitions:
            likely = partition_of(digest(id), settings.partitions)
        for number in sorted(range(settings.partitions), key=lambda n: n != likely):
            yield self.partition(settings, number)

    async def _send(self, partition: Partition, jobs: Sequence[NewJob]) -> list[bool]:
        known = await self.store.patiently(lambda: partition.enqueue(jobs))
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
