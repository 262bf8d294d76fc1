"""Context: the state that all handlers of one API share: the app, access rules, caches, and all queues."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from qbull.api.audit import AuditWriter
from qbull.api.auth import Authenticator, Caller
from qbull.api.live_stream import EventBroadcaster
from qbull.api.redaction import Redaction
from qbull.api.running_operations import OperationRunner
from qbull.app import App
from qbull.core.access import Access
from qbull.core.ids import check_name
from qbull.errors import ConfigError, NotFound, UnreadableSettings
from qbull.manage.dead_letters import DeadLetterReader
from qbull.queue import Queue
from qbull.store.read.latency import LatencyReader
from qbull.store.read.minutes import MinuteCache
from qbull.store.store import Store

if TYPE_CHECKING:
    from qbull.api.health import HealthReport
    from qbull.api.oidc_endpoints import SingleSignOnLogin
    from qbull.views.flows import FlowsView
    from qbull.views.latency import QueueLatencyView
    from qbull.views.overview import Overview
    from qbull.views.workers import RunningView

T = TypeVar("T")

QUEUE_SETTINGS_CACHE_SECONDS = 5.0
"""How long the settings of a queue are cached if its code is not in this process."""


HEALTH_CACHE_SECONDS = 2.0
"""How long a health report is cached: anybody may ask, as often as they like."""
METRICS_CACHE_SECONDS = 1.0
"""How long the metrics are cached."""
FLOWS_CACHE_SECONDS = 1.5
"""How long the list of flows is cached."""


class ApiContext:
    def __init__(self, app: App, access: Access) -> None:
        self.app = app
        self.access = access
        self.auth = Authenticator(lambda: self.store, access)
        self.single_sign_on: SingleSignOnLogin | None = None
        self.audit = AuditWriter(lambda: self.store)
        self.redaction = Redaction(access)
        self.operations = OperationRunner(lambda: self.store, self.audit)
        self.broadcaster = EventBroadcaster(
            lambda: self.store, self.queues, self.dead_letters, errors=not self.redaction.is_used
        )
        self.job_streams: Counter[str] = Counter()
        """Open streams of jobs, by caller."""
        self.health: CachedValue[HealthReport] = CachedValue(lambda: _health(self), HEALTH_CACHE_SECONDS)
        self.away_since_ms: int | None = None
        """Since when the job server cannot be reached."""
        self.running: dict[tuple[str, ...], CachedValue[RunningView]] = {}
        """By scope."""
        self.metrics: CachedValue[str] = CachedValue(lambda: _metrics(self), METRICS_CACHE_SECONDS)
        self.answered: Counter[tuple[str, int]] = Counter()
        self.flows: CachedValue[FlowsView] = CachedValue(lambda: _flows(self), FLOWS_CACHE_SECONDS)
        self.overviews: dict[tuple[int, tuple[str, ...]], CachedValue[Overview]] = {}
        """By period and scope."""
        self.minutes = MinuteCache()
        self.latency_reader = LatencyReader()
        self.latencies: dict[tuple[object, ...], CachedValue[QueueLatencyView]] = {}
        """By queue, span, chosen period and task."""
        self.shutting_down = asyncio.Event()
        self._dead_letters: dict[str, DeadLetterReader] = {}
        self._undeclared_queues: dict[str, tuple[float, Queue]] = {}

    @property
    def store(self) -> Store:
        return self.app._client().store

    async def queue(self, name: str) -> Queue:
        """A queue that the app declares or the server knows. Raises NotFound otherwise."""
        queue = self.app.queues.get(name)
        if queue is not None:
            return queue
        until, known = self._undeclared_queues.get(name, (0.0, None))
        if known is not None and time.monotonic() < until:
            return known
        try:
            check_name("queue", name)
        except ConfigError as error:
            raise NotFound(str(error)) from None
        settings = await self.store.settings(name)
        queue = Queue(self.app, settings)
        self._undeclared_queues[name] = time.monotonic() + QUEUE_SETTINGS_CACHE_SECONDS, queue
        return queue

    def dead_letters(self, queue: Queue) -> DeadLetterReader:
        """The dead letters of a queue by kind."""
        reader = self._dead_letters.get(queue.name)
        if reader is None:
            reader = DeadLetterReader(queue, self.redaction.fields)
            self._dead_letters[queue.name] = reader
        return reader

    async def close(self) -> None:
        await self.broadcaster.close()
        for reader in self._dead_letters.values():
            await reader.close()
        await self.operations.close()
        await self.audit.close()

    async def queues(self) -> list[Queue]:
        """All queues that the server knows or the app declares, by name.

        A queue whose settings cannot be read is left out; the health check names it.
        """
        found = []
        for name in sorted({*self.app.queues, *await self.store.queues()}):
            with suppress(UnreadableSettings):
                found.append(await self.queue(name))
        return found

    async def queues_of(self, caller: Caller) -> list[Queue]:
        """All queues that are in the scope of a caller, by name."""
        found = await self.queues()
        return [queue for queue in found if caller.may_use(queue.name)] if caller.queues else found


class CachedValue(Generic[T]):
    """A value that many callers need: computed at most once in `age` seconds."""

    def __init__(self, make: Callable[[], Awaitable[T]], age: float) -> None:
        self._make = make
        self._age = age
        self._at = float("-inf")
        self._value: T | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> T:
        async with self._turn:
            if self._value is None or time.monotonic() - self._at >= self._age:
                self._value = await self._make()
                self._at = time.monotonic()
            return self._value


async def _health(context: ApiContext) -> HealthReport:
    from qbull.api.health import read_report  # It is made of the values above.

    return await read_report(context)


async def _flows(context: ApiContext) -> FlowsView:
    from qbull.api.flows import read_flows

    return await read_flows(context)


async def _metrics(context: ApiContext) -> str:
    from qbull.api.metrics import collect

    return await collect(context)


def now() -> str:
    """The current time, for the `timestamp` of an answer."""
    second, ms = divmod(time.time_ns() // 1_000_000, 1000)
    return f"{_until_second(second)}.{ms:03d}Z"


@lru_cache(maxsize=2)
def _until_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
