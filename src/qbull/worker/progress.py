"""Progress: sends the progress and the log lines of running jobs to the server.

The last progress value of a job wins. The first value is sent at once, later ones at most every quarter of a
second, and the final one before the job is settled. A log line is sent at once; lines that arrive while
others are on their way are sent together. Jobs may report from any thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from qbull.core.progress import Progress
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.progress import MAX_LOG_LINE_CHARS, MAX_LOG_LINES, JobUpdate
from qbull.worker.assignment import Assignment
from qbull.worker.current import RunningJob
from qbull.worker.outage import Outage
from qbull.worker.streams import StreamWriter

PROGRESS_FLUSH_SECONDS = 0.25
PROGRESS_BATCH_SIZE = 100
"""Maximum number of jobs in one call."""


Written: TypeAlias = "asyncio.Future[None] | Future[None]"
"""Done when the server has a line: awaited on the event loop, or waited for in a thread."""


class UnsentProgress:
    """The progress and the log lines of a job that the server does not have yet.

    `told` counts the lines that the server was sent. `on_its_way` is the call that carries some of it now.
    """

    __slots__ = ("lines", "on_its_way", "progress", "told", "waiting")

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.lines: list[str] = []
        self.waiting: list[Written] = []
        self.told = 0
        self.on_its_way: asyncio.Event | None = None

    @property
    def new(self) -> bool:
        return self.progress is not None or bool(self.lines)


class ProgressWriter:
    """Writes the progress and the log lines of one queue's jobs, and has the writer of their streams."""

    def __init__(self, outage: Outage, assignment: Assignment) -> None:
        self._outage = outage
        self._streams = streams = StreamWriter(outage, assignment)
        self.encode = streams.encode
        self.hooks_of = streams.hooks_of
        self.emit = streams.emit
        self.emit_soon = streams.emit_soon
        self._loop: asyncio.AbstractEventLoop | None = None
        self._said: dict[RunningJob, UnsentProgress] = {}
        self._sent = -PROGRESS_FLUSH_SECONDS
        self._hurry = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Send from the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._streams.open()

    def progress(self, job: RunningJob, value: Progress) -> None:
        def say() -> None:
            if not job.stopped:
                self._of(job).progress = value
                self._send_soon()

        self._on_loop(say)

    async def log(self, job: RunningJob, text: str) -> None:
        """Send a log line. Returns when the server has it, or no longer needs it."""
        loop = self._loop
        if loop is None or asyncio.get_running_loop() is not loop:
            await asyncio.wrap_future(self.log_soon(job, text))
            return
        written: asyncio.Future[None] = loop.create_future()
        self._add_line(job, text, written)
        await written

    def log_soon(self, job: RunningJob, text: str) -> Future[None]:
        """The same from any thread. The future is done when the server has the line."""
        written: Future[None] = Future()
        if not self._on_loop(partial(self._add_line, job, text, written)):
            written.set_result(None)
        return written

    def _add_line(self, job: RunningJob, text: str, written: Written) -> None:
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

    async def flush(self, job: RunningJob) -> None:
        """Wait until the server has everything that the job has reported. Nothing is accepted after that."""
        try:
            while (said := self._said.get(job)) is not None and (said.new or said.on_its_way is not None):
                if said.new:
                    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    said.waiting.append(written)
                    self._hurry.set()
                    await written
                elif said.on_its_way is not None:
                    await said.on_its_way.wait()
            await self._streams.flush(job)
        finally:
            job.stopped = True
            self._said.pop(job, None)

    async def close(self) -> None:
        await self._streams.close()
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
            return False  # the worker has stopped, and its jobs belong to other workers now
        if asyncio._get_running_loop() is loop:
            say()
            return True
        try:
            loop.call_soon_threadsafe(say)
        except RuntimeError:  # the loop was closed at this moment
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
        arrived = asyncio.Event()
        notes, sent = [], []
        for job in jobs:
            said = self._said.get(job)
            if said is None or not said.new:
                continue
            lines, said.lines = said.lines, []
            progress, said.progress = said.progress, None
            waiting, said.waiting = said.waiting, []
            notes.append(
                JobUpdate(job.id, job.position, job.lane, progress, job.body.attempt, said.told, lines)
            )
            said.told += len(lines)
            said.on_its_way = arrived
            sent.append((said, waiting))
        try:
            if notes:
                await self._outage.retry_until_up(partial(partition.update_jobs, notes))
        finally:
            arrived.set()
            for said, waiting in sent:
                said.on_its_way = None
                _resolve_all(waiting)


def _resolve_all(waiting: list[Written]) -> None:
    for future in waiting:
        if not future.done():
            with suppress(InvalidStateError):  # It was cancelled in another thread at this moment.
                future.set_result(None)
