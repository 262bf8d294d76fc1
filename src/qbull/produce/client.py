"""Client: the connections, batches and subscriptions of an app on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from qbull.codecs.offload import ResultStore
from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.durable import StepRecord
from qbull.core.published import PublishedValue
from qbull.core.signals import NewSignal
from qbull.core.streams import StreamEntry
from qbull.errors import ConfigError
from qbull.produce.router import MOVING_JOB_POLL_SECONDS, MOVING_JOB_TIMEOUT_SECONDS, JobRouter, PlacedJob
from qbull.produce.send_fork import send_fork
from qbull.store.batch import Batcher
from qbull.store.completions import ResultListener
from qbull.store.read import inspect
from qbull.store.read.inspect import StoredJob
from qbull.store.store import Store
from qbull.store.verbs.descriptions import KnownTask
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.history import read_published_values, read_records, set_published_value
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.signals import send_signal
from qbull.store.verbs.streams import read_stream

if TYPE_CHECKING:
    from qbull.postgres.outbox import Outbox

MAX_FOUND_PER_CALL = 32
"""Jobs in one answer. Their records may be large."""


class Client:
    """The store, the router, and the listeners of one event loop."""

    has_server = True
    """Tasks that run inline have none."""

    def __init__(
        self, url: str, prefix: str, stored: ResultStore | None = None, *, write_only: bool = False
    ) -> None:
        self.store = Store(url, prefix)
        self.router = JobRouter(self.store, write_only)
        self.stored = stored
        self.results = ResultListener(self.store)
        self.flows = FlowStore(self.store)
        self.known_tasks: dict[tuple[str, str], tuple[KnownTask, float]] = {}
        """Tasks whose code is elsewhere, by queue and name, and until when they count as known."""
        self.known_queues: dict[str, tuple[QueueSettings, float]] = {}
        self.argument_folders: dict[str, str] = {}
        """The folder of each queue in the store of large arguments."""
        self._finders: dict[str, Batcher[str, StoredJob | None]] = {}
        self._outbox: Outbox | None = None

    async def find(self, settings: QueueSettings, id: str) -> tuple[Partition, StoredJob] | None:
        """The job and the partition that holds it; None if no partition knows it."""
        async with aclosing(self.router.candidates(settings, id)) as candidates:
            async for partition in candidates:
                found = await self._finder(partition).add(id)
                if found is not None:
                    return partition, found
        return None

    def _finder(self, partition: Partition) -> Batcher[str, StoredJob | None]:
        """Finds the jobs of a partition: callers that wait for many results ask together."""
        finder = self._finders.get(partition.base)
        if finder is None:
            finder = Batcher(partial(inspect.find_all, partition), MAX_FOUND_PER_CALL, in_order=False)
            self._finders[partition.base] = finder
        return finder

    async def on_job(
        self, settings: QueueSettings, id: str, verb: Callable[[Partition], Awaitable[str]]
    ) -> str:
        """Apply a verb to a job in the partition that holds it, and return the verb's answer.

        The answer is "unknown" if no partition knows the job. A job on its way to another partition arrives
        there in a moment; until then the verb is tried again.
        """
        clock = asyncio.get_running_loop().time
        until, word = clock() + MOVING_JOB_TIMEOUT_SECONDS, "moving"
        while word == "moving" and clock() < until:
            async with aclosing(self.router.candidates(settings, id)) as candidates:
                async for partition in candidates:
                    word = await verb(partition)
                    if word != "unknown":
                        break
            if word == "moving":
                await asyncio.sleep(MOVING_JOB_POLL_SECONDS)
        return word

    async def signal(
        self, settings: QueueSettings, id: str, signal: NewSignal, token: str, durability: Durability | None
    ) -> str:
        """Send a signal to a job; the answer of the verb."""
        confirmed = self.store.confirmed(durability) if durability is not None else None

        async def send(partition: Partition) -> str:
            return await send_signal(partition, confirmed, token, id, signal)

        return await self.on_job(settings, id, send)

    async def read_stream(
        self, partition: Partition, id: str, after: int, block_seconds: float
    ) -> list[StreamEntry]:
        """The values that a job has emitted after a number; waits for the next one if there is none."""
        return await read_stream(partition, id, after, block_seconds)

    async def read_records(self, partition: Partition, id: str, is_strict: bool = False) -> list[StepRecord]:
        """The recorded steps of a durable job, in order; `is_strict` as in store/verbs/history.py."""
        return await read_records(partition, id, is_strict)

    async def add_fork(
        self,
        settings: QueueSettings,
        placed: PlacedJob,
        history: Mapping[bytes, bytes],
        durability: Durability | None,
    ) -> bool:
        """Add a job with its history. Returns whether it is new."""
        return await send_fork(self.router, settings, placed, history, durability)

    async def read_published(self, partition: Partition, id: str, name: str | None) -> dict[str, bytes]:
        """The values that a job has published, or only the one with this name."""
        return await read_published_values(partition, id, name)

    async def set_published(
        self, settings: QueueSettings, id: str, value: PublishedValue, durability: Durability | None
    ) -> str:
        """Set a published value of a job from outside its run; the answer of the verb."""
        confirmed = self.store.confirmed(durability) if durability is not None else None

        async def send(partition: Partition) -> str:
            return await set_published_value(partition, confirmed, id, value)

        return await self.on_job(settings, id, send)

    def outbox(self, database: str | None) -> Outbox:
        """The writer of outbox rows for calls without a transaction of their own."""
        if database is None:
            raise ConfigError(
                'durability="outbox": no database is configured; set QBULL_DATABASE_URL, or App(database=…)'
            )
        if self._outbox is None:
            from qbull.postgres.outbox import Outbox

            self._outbox = Outbox(database)
        return self._outbox

    async def close(self) -> None:
        """Close all connections of this loop."""
        try:
            if self._outbox is not None:
                await self._outbox.close()
        finally:
            await self.results.close()
            await self.store.close()


def client_of_loop(
    clients: MutableMapping[asyncio.AbstractEventLoop, Client], make: Callable[[], Client]
) -> Client:
    """The client of the running event loop.

    A program that calls `asyncio.run` again and again, as async views of Flask do, has a new loop each time.
    Clients of closed loops are dropped: nobody can use their connections, or close them properly.
    """
    loop = asyncio.get_running_loop()
    client = clients.get(loop)
    if client is None:
        for other in list(clients):  # Threads have loops of their own, and may be here too.
            if other.is_closed():
                clients.pop(other, None)
        client = clients[loop] = make()
    return client
