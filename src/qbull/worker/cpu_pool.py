"""Pool: processes for tasks declared with cpu=True.

While a job runs, it has a process to itself. So a timeout really ends it, and a job that crashes its process
affects no other job. A signal to the worker's process group does not reach the pool, so that running jobs can
finish. Processes are started when first needed, and reused. cpu_process.py is the inside of one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from contextvars import Context
from functools import partial

import msgspec

from qbull.core.backoff import ExponentialBackoff
from qbull.core.outcome import ReportedError, Undeliverable
from qbull.core.progress import read_progress
from qbull.core.task import TaskSpec
from qbull.errors import ConfigError, Fail, RetryAfter
from qbull.worker.cpu_process import LENGTH_PREFIX, LifespanStart, ProcessReply, ProcessRequest
from qbull.worker.current import RunningJob
from qbull.worker.lifespan import Lifespans
from qbull.worker.process.forwarded_log import LoggerLevels, handle_forwarded
from qbull.worker.process.stack_dump import StackDump, format_frames
from qbull.worker.slot import StartTooLate

log = logging.getLogger("qbull.worker")

START_RETRY_BACKOFF = ExponentialBackoff(first_seconds=1.0, max_seconds=30.0)
"""The pauses after a lifespan has failed to start."""
LIFESPAN_STOP_SECONDS = 5.0
"""Seconds that an idle process has to stop its lifespans."""
PROGRESS_WORDS = frozenset(("log", "progress", "record", "emit", "spent"))
"""The replies that come before the answer."""
_decode_reply = msgspec.msgpack.Decoder(ProcessReply).decode
_PROCESS_MAIN = "import sys; from qbull.worker.cpu_process import serve; serve(*map(int, sys.argv[1:]))"


class ProcessDied(ReportedError):
    """The process that ran the job ended without an answer."""


class RemoteError(ReportedError):
    """An error that a task raised in its process."""

    def __init__(self, text: str, stacktrace: str) -> None:
        super().__init__(text)
        self.stacktrace = stacktrace


class RemoteFail(Fail):
    """`Fail`, raised by a task in its process."""

    def __init__(self, text: str, stacktrace: str) -> None:
        super().__init__(text)
        self.stacktrace = stacktrace


class StartPostponed(Exception):
    """The process cannot start. The job waits for so many milliseconds, and this uses up no attempt."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(f"postponed for {delay_ms} ms")
        self.delay_ms = delay_ms


class ProcessPool:
    def __init__(self, lifespans: Lifespans | None = None) -> None:
        self._lifespans = lifespans
        self._levels = LoggerLevels()
        self._failed_starts = 0
        self._idle: list[_PoolProcess] = []
        self._all: set[_PoolProcess] = set()

    async def run(self, task: TaskSpec, job: RunningJob, limit: int, payload: bytes | None = None) -> bytes:
        """Run the job and return its encoded result. If this call is cancelled, the process is killed."""
        process = await self._free()
        function = task.function
        try:
            request = ProcessRequest(
                function.__module__,
                function.__qualname__,
                job.queue,
                job.id,
                job.position,
                job.record,
                limit,
                job.partition.app if job.partition is not None else "",
                job.start_by,
                payload,
                list(job.dependencies),
                process.new_levels(self._levels.now()),
                dict(job.resources or {}),
            )
            if job.lease is not None:
                job.lease.held.runs_in(process.pid)
            if job.process_started is not None:
                job.process_started(process.pid)
            job.process_stack = process.stack
            if self._lifespans and not process.has_lifespans:
                await self._start_lifespans(process, job, self._lifespans.of_cpu_process())
            answer = await process.send(request, partial(_pass_progress_on, job))
        except BaseException:
            await self._end(process)
            raise
        finally:
            job.process_stack = None
        self._idle.append(process)
        if answer.word == "late":
            raise StartTooLate
        if answer.word == "retry":
            raise RetryAfter(answer.delay, answer.error, queue=answer.queue)
        if answer.word == "fail":
            raise RemoteFail(answer.error, answer.stacktrace)
        if answer.word == "undeliverable":
            raise Undeliverable(answer.error)
        if answer.result is None:
            raise RemoteError(answer.error, answer.stacktrace)
        return answer.result

    async def _start_lifespans(
        self, process: _PoolProcess, job: RunningJob, lifespans: list[tuple[str, str]]
    ) -> None:
        """Start the lifespans of the app in a new process, or put the job off."""
        if lifespans:
            request = LifespanStart(lifespans, self._levels.now())
            with job.without_timeout() if job.without_timeout is not None else nullcontext():
                answer = await process.send(request, partial(_pass_progress_on, job))
            if answer.error:
                wait = START_RETRY_BACKOFF.delay(self._failed_starts)
                self._failed_starts += 1
                log.error("%s", answer.error)
                raise StartPostponed(int(wait * 1000))
            self._failed_starts = 0
        process.has_lifespans = True

    async def close(self) -> None:
        await asyncio.gather(*(process.leave() for process in self._idle if process.has_lifespans))
        for process in list(self._all):
            await self._end(process)
        self._idle.clear()

    async def _free(self) -> _PoolProcess:
        """A live process. An idle one may have been killed in the meantime."""
        while self._idle:
            process = self._idle.pop()
            if not process.ended:
                return process
            await self._end(process)
        process = await _PoolProcess.start()
        self._all.add(process)
        return process

    async def _end(self, process: _PoolProcess) -> None:
        self._all.discard(process)
        await asyncio.shield(process.end())


class _ReplyReader(asyncio.Protocol):
    """Reads the replies of a process. One request is under way at a time."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._answer: asyncio.Future[ProcessReply] | None = None
        self._on_progress: Callable[[ProcessReply], None] | None = None
        self.closed = False

    def next(self, on_progress: Callable[[ProcessReply], None]) -> asyncio.Future[ProcessReply]:
        """The answer to the request that is sent now. `on_progress` receives what comes before it."""
        self._on_progress = on_progress
        self._answer = asyncio.get_running_loop().create_future()
        if self.closed:
            self._answer.set_exception(ConnectionResetError())
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            for reply in self._complete_replies():
                if reply.word not in PROGRESS_WORDS:
                    if self._answer is not None and not self._answer.done():
                        self._answer.set_result(reply)
                elif self._on_progress is not None:
                    self._on_progress(reply)
        except Exception as error:
            self._fail(error)

    def eof_received(self) -> None:
        self._fail(ConnectionResetError())

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError())

    def _complete_replies(self) -> Iterator[ProcessReply]:
        while len(self._data) >= LENGTH_PREFIX.size:
            end = LENGTH_PREFIX.size + LENGTH_PREFIX.unpack_from(self._data)[0]
            if len(self._data) < end:
                return
            body = bytes(self._data[LENGTH_PREFIX.size : end])
            del self._data[:end]
            yield _decode_reply(body)

    def _fail(self, error: Exception) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class _PoolProcess:
    """A process of the pool.

    `connection` is a second handle of the socket that is read and written, because event loops do not release
    theirs. `life` is this worker's end of the lifeline: the process ends when it is closed.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        transport: asyncio.Transport,
        replies: _ReplyReader,
        connection: socket.socket,
        life: int,
        dump: StackDump,
    ) -> None:
        self._process = process
        self._transport = transport
        self._replies = replies
        self._levels: dict[str, int] | None = None
        self._socket = connection
        self._life = life
        self._dump = dump
        self.has_lifespans = False
        """The lifespans of the app have started in it."""
        self._watching = asyncio.create_task(self._watch(), context=Context())

    @property
    def pid(self) -> int:
        """Its process id, which is the id of its process group too."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._watching.done() or self._replies.closed

    @classmethod
    async def start(cls) -> _PoolProcess:
        ours, theirs = socket.socketpair()
        life, held = os.pipe()
        dump = StackDump()
        try:
            with theirs:
                fds = (theirs.fileno(), life, dump.fd)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", _PROCESS_MAIN, *map(str, fds), str(os.getpid())),
                    pass_fds=fds,
                    start_new_session=True,
                    stdin=asyncio.subprocess.DEVNULL,
                )
        except BaseException:
            ours.close()
            os.close(held)
            dump.close()
            raise
        finally:
            os.close(life)
        connection = ours.dup()
        transport, replies = await asyncio.get_running_loop().create_connection(_ReplyReader, sock=ours)
        return cls(process, transport, replies, connection, held, dump)

    def new_levels(self, levels: dict[str, int]) -> dict[str, int] | None:
        """The levels of the loggers, if they have changed since the request before."""
        changed, self._levels = levels is not self._levels, levels
        return levels if changed else None

    async def stack(self) -> str:
        """Where its main thread is."""
        return format_frames(await self._dump.read(self.pid)) if self._process.returncode is None else ""

    async def send(
        self, request: ProcessRequest | LifespanStart, on_progress: Callable[[ProcessReply], None]
    ) -> ProcessReply:
        """Run a request. `on_progress` receives the job's progress and log lines meanwhile."""
        try:
            body = msgspec.msgpack.encode(request)
            answer = self._replies.next(on_progress)
            self._transport.write(LENGTH_PREFIX.pack(len(body)) + body)
            return await answer
        except OSError:
            code = await self._process.wait()
            raise ProcessDied(f"the process that ran it ended with {_exit_description(code)}") from None

    async def leave(self) -> None:
        """Let an idle process stop its lifespans and end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        await asyncio.wait([self._watching], timeout=LIFESPAN_STOP_SECONDS)

    async def end(self) -> None:
        self._transport.close()
        if self._process.returncode is None:
            self._kill()
        await self._watching

    async def _watch(self) -> None:
        """Close the socket for reading once the process has ended: a child of it may still hold it open."""
        await self._process.wait()
        self._kill()
        os.close(self._life)
        self._dump.close()
        with self._socket, suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def _kill(self) -> None:
        """Kill the process and everything that it has started: it has its own process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _pass_progress_on(job: RunningJob, answer: ProcessReply) -> None:
    """Report the progress, the log lines and the values of a job that runs in another process."""
    if answer.word == "record":
        handle_forwarded(answer.result or b"", job)
        return
    if answer.word == "spent":
        if job.spend is not None:
            with suppress(ConfigError):
                job.spend(answer.error or None, int(answer.result or b"0"))
        return
    if job.progress_sink is None:
        return
    job.has_output = True
    if answer.word == "emit":
        job.progress_sink.emit_soon(job, answer.result or b"null")
    elif answer.word == "log":
        job.progress_sink.log_soon(job, answer.error)
    elif (reported := read_progress(answer.result or b"")) is not None:
        job.progress_sink.progress(job, reported)


def _exit_description(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"
