"""Note: what running jobs say of themselves, their progress and log lines, on its way to the server.

Of a job's progress the last value wins. The first leaves at once, others wait until a quarter of a second has
passed since the last were sent, and the final one leaves before the job is settled. A log line leaves at
once; those that are said while some are on their way leave together. All of it may be said from any thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial

from qbull.store.verbs.partition import Partition
from qbull.store.verbs.progress import MAX_LOG_LINE_CHARS, MAX_LOG_LINES, JobUpdate
from qbull.worker.current import RunningJob
from qbull.worker.outage import Outage

PROGRESS_FLUSH_SECONDS = 0.25
PROGRESS_BATCH_SIZE = 100
"""Jobs in one call at most."""


class UnsentProgress:
    """What a job has said and the server does not know yet, and how many lines of it the server was told.

    `arrived` is not set while something is on its way.
    """

    def __init__(self) -> None:
        self.progress: float | None = None
        self.lines: list[str] = []
        self.waiting: list[Future[None]] = []
        self.told = 0
        self.arrived = asyncio.Event()
        self.arrived.set()

    @property
    def new(self) -> bool:
        return self.progress is not None or bool(self.lines)


class ProgressWriter:
    """For one queue."""

    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._loop: asyncio.AbstractEventLoop | None = None
        self._said: dict[RunningJob, UnsentProgress] = {}
        self._sent = -PROGRESS_FLUSH_SECONDS
        self._hurry = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def open(self) -> None:
        """From now on there is an event loop to send from."""
        self._loop = asyncio.get_running_loop()

    def progress(self, job: RunningJob, value: float) -> None:
        def say() -> None:
            if not job.stopped:
                self._of(job).progress = value
                self._send_soon()

        self._on_loop(say)

    def log(self, job: RunningJob, text: str) -> Future[None]:
        """Done when the server has it, or wants it no more."""
        written: Future[None] = Future()

        def say() -> None:
            if job.stopped:
                _resolve_all([written])
                return
            said = self._of(job)
            said.lines.append(text[:MAX_LOG_LINE_CHARS])
            if len(said.lines) > MAX_LOG_LINES:
                said.told += 1
                del said.lines[0]
            said.waiting.append(written)
            self._hurry.set()
            self._send_soon()

        if not self._on_loop(say):
            written.set_result(None)
        return written

    async def flush(self, job: RunningJob) -> None:
        """Wait until the server has all that the job has said. It says nothing more after that."""
        try:
            while (said := self._said.get(job)) is not None and (said.new or not said.arrived.is_set()):
                if said.new:
                    written: Future[None] = Future()
                    said.waiting.append(written)
                    self._hurry.set()
                    await asyncio.wrap_future(written)
                else:
                    await said.arrived.wait()
        finally:
            job.stopped = True
            self._said.pop(job, None)

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        for said in self._said.values():
            _resolve_all(said.waiting)
        self._said.clear()
        self._loop = None

    def _on_loop(self, say: Callable[[], None]) -> bool:
        loop = self._loop
        if loop is None or loop.is_closed():
            return False  # the worker has ended, and its jobs are others' now
        if asyncio._get_running_loop() is loop:
            say()
            return True
        try:
            loop.call_soon_threadsafe(say)
        except RuntimeError:  # it was closed in this moment
            return False
        return True

    def _of(self, job: RunningJob) -> UnsentProgress:
        said = self._said.get(job)
        if said is None:
            said = self._said[job] = UnsentProgress()
        return said

    def _send_soon(self) -> None:
        if self._sending is None and self._loop is not None:
            self._sending = self._loop.create_task(self._send())

    async def _send(self) -> None:
        try:
            while jobs := [job for job, said in self._said.items() if said.new]:
                if not self._hurry.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._sent + PROGRESS_FLUSH_SECONDS - time.monotonic()):
                            await self._hurry.wait()
                self._hurry.clear()
                self._sent = time.monotonic()
                by: dict[Partition, list[RunningJob]] = {}
                for job in jobs:
                    assert job.partition is not None
                    by.setdefault(job.partition, []).append(job)
                for partition, some in by.items():
                    for start in range(0, len(some), PROGRESS_BATCH_SIZE):
                        await self._write(partition, some[start : start + PROGRESS_BATCH_SIZE])
        finally:
            self._sending = None

    async def _write(self, partition: Partition, jobs: list[RunningJob]) -> None:
        notes, sent = [], []
        for job in jobs:
            said = self._said.get(job)
            if said is None or not said.new:
                continue
            lines, said.lines = said.lines, []
            progress, said.progress = said.progress, None
            waiting, said.waiting = said.waiting, []
            notes.append(JobUpdate(job.id, job.place, job.lane, progress, job.body.attempt, said.told, lines))
            said.told += len(lines)
            said.arrived.clear()
            sent.append((said, waiting))
        try:
            if notes:
                await self._outage.retry_until_up(partial(partition.update_jobs, notes))
        finally:
            for said, waiting in sent:
                said.arrived.set()
                _resolve_all(waiting)


def _resolve_all(waiting: list[Future[None]]) -> None:
    for future in waiting:
        with suppress(InvalidStateError):
            future.set_result(None)
