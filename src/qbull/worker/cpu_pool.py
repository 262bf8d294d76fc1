"""Pool: processes for tasks declared with cpu=True.

While a job runs, it has a process to itself. So a timeout really ends it, and a job that crashes its process
affects no other job. A signal to the worker's process group does not reach the pool, so that running jobs can
finish. Processes are started when first needed, and reused. Only bytes travel: the task's name and its
payload to the process, the encoded result or the error back.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from functools import partial
from math import inf
from typing import Any, BinaryIO

import msgspec

from qbull.core.codec import PAYLOAD_LIMIT_BYTES, Signature, encode_result
from qbull.core.flow import Dependency
from qbull.core.outcome import AlreadyDone, ReportedError, Undeliverable, describe, format_stacktrace
from qbull.core.record import body_of
from qbull.core.task import TaskSpec
from qbull.errors import Fail, PayloadError, RetryAfter
from qbull.store.verbs.progress import MAX_LOG_LINE_CHARS
from qbull.worker.current import RunningJob, running
from qbull.worker.process.forwarded_log import ForwardingHandler, handle_forwarded, logger_levels
from qbull.worker.process.lifeline import end_group, follow_parent, is_cut
from qbull.worker.slot import StartTooLate

_LENGTH_PREFIX = struct.Struct(">I")
_PROCESS_MAIN = "import sys; from qbull.worker.cpu_pool import serve; serve(*map(int, sys.argv[1:]))"


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


class ProcessRequest(msgspec.Struct):
    module: str
    name: str
    queue: str
    id: bytes
    place: bytes
    record: bytes
    limit: int = PAYLOAD_LIMIT_BYTES
    app: str = ""
    start_by: float = inf
    payload: bytes | None = None
    """The decoded arguments, if those in the record are encrypted or signed: a process has no keys."""
    dependencies: list[tuple[str, Dependency]] = []
    log_levels: dict[str, int] = {}
    """The levels of the worker's loggers."""


class ProcessReply(msgspec.Struct):
    result: bytes | None = None
    error: str = ""
    stacktrace: str = ""
    word: str = ""
    delay: float = 0.0
    queue: bool = False


class ProcessPool:
    def __init__(self) -> None:
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
                job.place,
                job.record,
                limit,
                job.partition.app if job.partition is not None else "",
                job.start_by,
                payload,
                job.dependencies,
                logger_levels(),
            )
            if job.process_started is not None:
                job.process_started(process.pid)
            answer = await process.send(request, partial(_pass_progress_on, job))
        except BaseException:
            await self._end(process)
            raise
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

    async def close(self) -> None:
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


class _PoolProcess:
    """A process of the pool.

    `connection` is a second handle of the socket that is read and written, because event loops do not release
    theirs. `life` is this worker's end of the lifeline: the process ends when it is closed.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: socket.socket,
        life: int,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._socket = connection
        self._life = life
        self._watching = asyncio.create_task(self._watch(), context=Context())

    @property
    def pid(self) -> int:
        """Its process id, which is the id of its process group too."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._watching.done() or self._reader.at_eof()

    @classmethod
    async def start(cls) -> _PoolProcess:
        ours, theirs = socket.socketpair()
        life, held = os.pipe()
        try:
            with theirs:
                fds = (theirs.fileno(), life)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", _PROCESS_MAIN, *map(str, fds), str(os.getpid())),
                    pass_fds=fds,
                    start_new_session=True,
                    stdin=asyncio.subprocess.DEVNULL,
                )
        except BaseException:
            ours.close()
            os.close(held)
            raise
        finally:
            os.close(life)
        connection = ours.dup()
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer, connection, held)

    async def send(
        self, request: ProcessRequest, on_progress: Callable[[ProcessReply], None]
    ) -> ProcessReply:
        """Run a request. `on_progress` receives the job's progress and log lines meanwhile."""
        try:
            body = msgspec.msgpack.encode(request)
            self._writer.write(_LENGTH_PREFIX.pack(len(body)) + body)
            await self._writer.drain()
            while True:
                length = _LENGTH_PREFIX.unpack(await self._reader.readexactly(4))[0]
                answer = msgspec.msgpack.decode(await self._reader.readexactly(length), type=ProcessReply)
                if answer.word not in ("log", "progress", "record"):
                    return answer
                on_progress(answer)
        except (asyncio.IncompleteReadError, OSError):
            code = await self._process.wait()
            raise ProcessDied(f"the process that ran it ended with {_exit_description(code)}") from None

    async def end(self) -> None:
        self._writer.close()
        if self._process.returncode is None:
            self._kill()
        await self._watching

    async def _watch(self) -> None:
        """Close the socket for reading once the process has ended: a child of it may still hold it open."""
        await self._process.wait()
        self._kill()
        os.close(self._life)
        with self._socket, suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def _kill(self) -> None:
        """Kill the process and everything that it has started: it has its own process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _pass_progress_on(job: RunningJob, answer: ProcessReply) -> None:
    """Report the progress and the log lines of a job that runs in another process."""
    if answer.word == "record":
        handle_forwarded(answer.result or b"", job)
        return
    if job.progress_sink is None:
        return
    job.has_output = True
    if answer.word == "log":
        job.progress_sink.log(job, answer.error)
    else:
        job.progress_sink.progress(job, answer.delay)


class ProcessProgressSink:
    """In a process of the pool: passes the job's progress and log lines to the worker, from any thread."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._turn = threading.Lock()

    def progress(self, job: RunningJob, value: float) -> None:
        self.tell(ProcessReply(word="progress", delay=value))

    def log(self, job: RunningJob, text: str) -> Future[None]:
        self.tell(ProcessReply(word="log", error=text[:MAX_LOG_LINE_CHARS]))
        written: Future[None] = Future()
        written.set_result(None)
        return written

    def tell_record(self, record: bytes) -> None:
        """Pass a log record on, as `forwarded_log` encodes it."""
        self.tell(ProcessReply(word="record", result=record))

    def tell(self, answer: ProcessReply) -> None:
        # An error text may contain lone surrogates, which no encoding can carry.
        answer.error = answer.error.encode("utf-8", "replace").decode()
        answer.stacktrace = answer.stacktrace.encode("utf-8", "replace").decode()
        body = msgspec.msgpack.encode(answer)
        with self._turn:
            self._answers.write(_LENGTH_PREFIX.pack(len(body)) + body)
            self._answers.flush()


def _exit_description(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"


def _run_request(
    request: ProcessRequest, sink: ProcessProgressSink, log_handler: ForwardingHandler, life: int
) -> ProcessReply:
    try:
        imported = request.module in sys.modules
        function = _find_function(request)
        if not imported:
            log_handler.take_over()
        log_handler.apply_levels(request.log_levels)
        body = body_of(request.record)
        args, kwargs = Signature(body.task, function).decode(
            body.payload if request.payload is None else request.payload
        )
        job = RunningJob(request.queue, request.place, request.id, request.record, body)
        job.progress_sink, job.app, job.dependencies = sink, request.app, request.dependencies
        running.set(job)
        if time.monotonic() > request.start_by:  # all processes of a machine share the monotonic clock
            return ProcessReply(word="late")
        # The job may be another worker's by now.
        if is_cut(life):
            end_group()
        value = function(*args, **kwargs)
    except RetryAfter as error:
        return ProcessReply(error=describe(error), word="retry", delay=error.delay, queue=error.queue)
    except Fail as error:
        return ProcessReply(error=describe(error), word="fail", stacktrace=format_stacktrace(error) or "")
    except AlreadyDone:
        return ProcessReply(b"null")
    except BaseException as error:
        return ProcessReply(error=describe(error), stacktrace=format_stacktrace(error) or "")
    try:
        return ProcessReply(encode_result(value, request.limit))
    except PayloadError as error:
        return ProcessReply(error=str(error), word="undeliverable")


def _find_function(request: ProcessRequest) -> Any:
    found: Any = importlib.import_module(request.module)
    for part in request.name.split("."):
        found = getattr(found, part)
    return found.spec.function if hasattr(found, "spec") else found


def serve(fd: int, life: int, parent: int) -> None:
    """The main function of a process of the pool: run requests until its worker is gone."""
    follow_parent(life, parent)
    sys.path.insert(0, os.getcwd())
    with os.fdopen(os.dup(fd), "rb") as source, os.fdopen(fd, "wb") as answers:
        sink = ProcessProgressSink(answers)
        log_handler = ForwardingHandler(sink.tell_record)
        log_handler.take_over()
        while len(head := source.read(4)) == 4:
            request = msgspec.msgpack.decode(source.read(_LENGTH_PREFIX.unpack(head)[0]), type=ProcessRequest)
            sink.tell(_run_request(request, sink, log_handler, life))
