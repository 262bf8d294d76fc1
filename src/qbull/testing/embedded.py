"""Embedded: an app on a real Valkey that this process starts for its tests, with a clock that tests can move.

The server starts when it is first needed and ends with the process. Each block has its own prefix on it.
"""

from __future__ import annotations

import asyncio
import atexit
import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from math import ceil
from types import TracebackType
from typing import NamedTuple

from qbull.app import App
from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.flow import FlowPlan
from qbull.embedded.server import EmbeddedServer as Valkey
from qbull.errors import QbullError
from qbull.produce.client import Client
from qbull.produce.router import JobRouter, PlacedJob
from qbull.store import clock
from qbull.store.confirm import ConfirmedServer
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs import live_settings
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.partition import NewJob, Partition
from qbull.testing.enqueued import EnqueueRecorder
from qbull.testing.stand_in import StandIn, close, close_elsewhere
from qbull.worker.outage import Outage
from qbull.worker.tick import ScheduleRunner

_open: list[EmbeddedTestServer] = []


class EmbeddedTestServer(EnqueueRecorder):
    """`async with qbull.testing.embedded(app) as server:`, or `with` in synchronous tests.

    Args:
        app: the app to test. In the block it uses the test server.
    """

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.prefix = f"test-{secrets.token_hex(4)}"

    async def __aenter__(self) -> EmbeddedTestServer:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        try:
            await close(self.app)
        finally:
            self._leave()

    def __enter__(self) -> EmbeddedTestServer:
        self._stand_in = StandIn(
            self.app,
            url=_server(),
            prefix=self.prefix,
            durability=None,
            _make_client=lambda: _RecordingClient(self),
        )
        _open.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.app.close_sync()
            close_elsewhere(self.app)
        finally:
            self._leave()

    async def now(self) -> datetime:
        """The server's time."""
        return datetime.fromtimestamp(await inspect.server_time(self._store), UTC)

    async def run_due(self) -> None:
        """Run all jobs that are due, and the jobs that they enqueue.

        Delayed jobs and retries wait for `advance()`.
        """
        async with self._worker():
            await self._run_due()

    async def advance(self, seconds: float) -> None:
        """Let time pass on the server: delayed jobs, retries and scheduled runs start, each at its time.

        Args:
            seconds: how far to move the clock.
        """
        if seconds < 0:
            raise QbullError(f"advance({seconds}): time goes forward only")
        async with self._worker():
            passed = 0
            while passed < ceil(seconds):
                wait = await self._run_due()
                left = ceil(seconds) - passed
                step = left if wait is None else min(max(ceil(wait), 1), left)
                await clock.advance_clock(self._store, step * 1000)
                passed += step
            await self._run_due()

    def now_sync(self) -> datetime:
        """`now` from synchronous code."""
        return self.app.run_sync(self.now())

    def run_due_sync(self) -> None:
        """`run_due` from synchronous code."""
        self.app.run_sync(self.run_due())

    def advance_sync(self, seconds: float) -> None:
        """`advance` from synchronous code.

        Args:
            seconds: how far to move the clock.
        """
        self.app.run_sync(self.advance(seconds))

    @property
    def _store(self) -> Store:
        return self.app._client().store

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[None]:
        await self._store.open()
        async with self.app.worker():
            yield

    async def _run_due(self) -> float | None:
        """Run until nothing is due; returns the seconds until the next job is."""
        before: list[_Activity] = []
        while True:
            seen = [
                await self._look(each)
                for queue in self.app.queues.values()
                for each in await self._all(queue.settings)
            ]
            # Read twice: a job that leaves one state between the reads is in the next one.
            if not any(each.busy for each in seen) and [each.totals for each in seen] == [
                each.totals for each in before
            ]:
                return min((each.wait for each in seen if each.wait is not None), default=None)
            before = seen
            await asyncio.sleep(0.005)

    async def _all(self, settings: QueueSettings) -> list[Partition]:
        return await self._store.partitions(settings)

    async def _look(self, partition: Partition) -> _Activity:
        settings = partition.settings
        queue = self.app.queues[settings.name]
        ticker = ScheduleRunner(self._store, partition, queue.tasks, Outage(), self.app._codecs)
        tick = await ticker.tick()
        await self.app._client().flows.dispatch(partition)
        promoted = await partition.promote()
        count = await inspect.count(partition)
        still = await live_settings.is_paused(self._store, settings.name)
        busy = count.active if still else count.entries
        waits = [wait for wait in (promoted.wait, tick) if wait is not None]
        return _Activity(bool(promoted.moved or busy), count.totals, min(waits, default=None))

    def _leave(self) -> None:
        self._stand_in.undo()
        _open.remove(self)
        if not _open:
            _wipe()


class _Activity(NamedTuple):
    busy: bool
    totals: dict[str, int]
    wait: float | None


class _RecordingClient(Client):
    """Records the calls that are enqueued."""

    def __init__(self, record: EmbeddedTestServer) -> None:
        super().__init__(record.app.url, record.prefix, record.app.results)
        self.router = _RecordingRouter(self.store, record)
        self.flows = _RecordingFlows(self.store, record)
        self._ending = self._close_with_its_loop()
        with suppress(StopIteration):
            self._ending.__anext__().send(None)

    async def _close_with_its_loop(self) -> AsyncGenerator[None, None]:
        """A test's event loop may end before the fixture. Each loop closes its own generators."""
        try:
            yield
        finally:
            await self.close()


class _RecordingRouter(JobRouter):
    def __init__(self, store: Store, record: EmbeddedTestServer) -> None:
        super().__init__(store)
        self._record = record

    async def send_one(
        self, settings: QueueSettings, placed: PlacedJob, durability: Durability | None
    ) -> bool:
        created = await super().send_one(settings, placed, durability)
        self._record._note(settings.name, placed, placed.job.id, created)
        return created

    async def send(
        self, settings: QueueSettings, jobs: Sequence[PlacedJob], durability: Durability | None
    ) -> list[tuple[str, bool]]:
        answers = await super().send(settings, jobs, durability)
        for placed, (id, created) in zip(jobs, answers, strict=True):
            self._record._note(settings.name, placed, id, created)
        return answers


class _RecordingFlows(FlowStore):
    def __init__(self, store: Store, record: EmbeddedTestServer) -> None:
        super().__init__(store)
        self._record = record

    async def start(self, plan: FlowPlan, confirmed: ConfirmedServer | None) -> bool:
        created = await super().start(plan, confirmed)
        for seed in plan.seeds:
            self._record._note(
                seed.queue, PlacedJob(0, NewJob(seed.id, seed.when, seed.record)), seed.id, created
            )
        return created


@cache
def _valkey() -> Valkey:
    directory = tempfile.mkdtemp(prefix="qbull-tests-")
    valkey = Valkey.open(directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(valkey.close)
    return valkey


def _server() -> str:
    """The address of this process's test server. Starts it if it is not running."""
    valkey = _valkey()
    valkey.ensure()
    return f"unix://:{valkey.password}@{valkey.socket}?db=0&test_clock=1"


def _wipe() -> None:
    """Delete all data of a test, so that the next one does not see it."""
    _valkey()._ask("FLUSHALL")
