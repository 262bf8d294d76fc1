"""The inside of a process of the CPU pool: its main function, and the messages to and from its worker.

Only bytes travel: the task's name and its payload to the process, the encoded result or the error back. The
lifespans of the app start before the first job and stop when the worker closes the connection.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
import threading
import time
from contextlib import ExitStack
from functools import cache
from math import inf
from typing import Any, BinaryIO

import msgspec

from qbull.core.codec import PAYLOAD_LIMIT_BYTES, Signature
from qbull.core.flow import Dependency
from qbull.core.outcome import AlreadyDone, describe
from qbull.core.progress import Progress
from qbull.core.record import body_of
from qbull.core.stacktrace import format_stacktrace
from qbull.core.values import DEFAULT_HOOKS, ValueHooks
from qbull.errors import Fail, LifespanError, PayloadError, RetryAfter
from qbull.store.verbs.progress import MAX_LOG_LINE_CHARS
from qbull.worker.current import RunningJob, SimpleSink, running
from qbull.worker.debugging import refuse_breakpoints
from qbull.worker.lifespan import Lifespan
from qbull.worker.process.forwarded_log import ForwardingHandler
from qbull.worker.process.lifeline import end_group, follow_parent, is_cut
from qbull.worker.process.stack_dump import dump_on_signal

LENGTH_PREFIX = struct.Struct(">I")


class LifespanStart(msgspec.Struct, tag=True):
    """The first request to a process: start these lifespans."""

    lifespans: list[tuple[str, str]]
    log_levels: dict[str, int] = {}


class ProcessRequest(msgspec.Struct, tag=True):
    module: str
    name: str
    queue: str
    id: bytes
    position: bytes
    record: bytes
    limit: int = PAYLOAD_LIMIT_BYTES
    app: str = ""
    start_by: float = inf
    payload: bytes | None = None
    """The decoded arguments, if those in the record are encrypted or signed: a process has no keys."""
    dependencies: list[tuple[str, Dependency]] = []
    log_levels: dict[str, int] | None = None
    """The levels of the worker's loggers; None if they are those of the request before."""
    resources: dict[str, list[int]] = {}
    """The tokens of the host that the job holds."""


_requests = msgspec.msgpack.Decoder(ProcessRequest | LifespanStart)


class ProcessReply(msgspec.Struct):
    result: bytes | None = None
    error: str = ""
    stacktrace: str = ""
    word: str = ""
    delay: float = 0.0
    queue: bool = False


class ProcessProgressSink(SimpleSink):
    """In a process of the pool: passes progress, log lines and values to the worker, from any thread."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._turn = threading.Lock()
        self.hooks: ValueHooks = DEFAULT_HOOKS
        """How values of the running task travel."""

    def progress(self, job: RunningJob, value: Progress) -> None:
        self.tell(ProcessReply(word="progress", result=value.packed().encode()))

    def take_line(self, job: RunningJob, text: str) -> None:
        self.tell(ProcessReply(word="log", error=text[:MAX_LOG_LINE_CHARS]))

    def hooks_of(self, job: RunningJob) -> ValueHooks:
        return self.hooks

    def take_value(self, job: RunningJob, content: bytes) -> None:
        self.tell(ProcessReply(word="emit", result=content))

    def spend(self, limit: str | None, weight: int) -> None:
        """Pass on what the job has taken of a shared limit."""
        self.tell(ProcessReply(word="spent", error=limit or "", result=str(weight).encode()))

    def tell_record(self, record: bytes) -> None:
        """Pass a log record on, as `forwarded_log` encodes it."""
        self.tell(ProcessReply(word="record", result=record))

    def tell(self, answer: ProcessReply) -> None:
        # An error text may contain lone surrogates, which no encoding can carry.
        answer.error = answer.error.encode("utf-8", "replace").decode()
        answer.stacktrace = answer.stacktrace.encode("utf-8", "replace").decode()
        body = msgspec.msgpack.encode(answer)
        with self._turn:
            self._answers.write(LENGTH_PREFIX.pack(len(body)) + body)
            self._answers.flush()


def _run_request(
    request: ProcessRequest, sink: ProcessProgressSink, log_handler: ForwardingHandler, life: int
) -> ProcessReply:
    try:
        imported = request.module in sys.modules
        body = body_of(request.record)
        function, signature = _find_task(request.module, request.name, body.task)
        if not imported:
            log_handler.take_over()
        if request.log_levels is not None:
            log_handler.apply_levels(request.log_levels)
        args, kwargs = signature.decode(body.payload if request.payload is None else request.payload)
        job = RunningJob(request.queue, request.position, request.id, request.record, body)
        sink.hooks = signature.hooks
        job.progress_sink, job.app, job.dependencies = sink, request.app, request.dependencies
        job.spend, job.resources = sink.spend, request.resources
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
        return ProcessReply(signature.encode_result(value, request.limit))
    except PayloadError as error:
        return ProcessReply(error=str(error), word="undeliverable")


def _start_lifespans(
    request: LifespanStart, started: ExitStack, log_handler: ForwardingHandler
) -> ProcessReply:
    try:
        for module, name in request.lifespans:
            lifespan = _find_lifespan(module, name)
            log_handler.take_over()
            log_handler.apply_levels(request.log_levels)
            started.enter_context(lifespan.running_here())
    except BaseException as error:
        return ProcessReply(error=str(error) if isinstance(error, LifespanError) else describe(error))
    return ProcessReply()


def _find_lifespan(module: str, name: str) -> Lifespan[Any]:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if not isinstance(found, Lifespan):
            raise AttributeError(f"it is {found!r}")
    except (ImportError, AttributeError) as error:
        raise LifespanError(
            f'lifespan "{name}" of module "{module}" cannot be imported by a process of cpu=True: {error}. '
            "Declare it at module level, or with cpu=False."
        ) from error
    return found


@cache
def _find_task(module: str, name: str, task: str) -> tuple[Any, Signature]:
    """The function of a task and its signature. They are looked up once, which takes longer than a run."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if hasattr(found, "spec"):
        return found.spec.function, Signature(task, found.spec.function, found.spec.signature.hooks)
    return found, Signature(task, found, DEFAULT_HOOKS)


def serve(fd: int, life: int, dump: int, parent: int) -> None:
    """The main function of a process of the pool: run requests until its worker is gone."""
    follow_parent(life, parent)
    dump_on_signal(dump)
    refuse_breakpoints()
    sys.path.insert(0, os.getcwd())
    with os.fdopen(os.dup(fd), "rb") as source, os.fdopen(fd, "wb") as answers:
        sink = ProcessProgressSink(answers)
        log_handler = ForwardingHandler(sink.tell_record)
        log_handler.take_over()
        with ExitStack() as lifespans:
            while len(head := source.read(4)) == 4:
                request = _requests.decode(source.read(LENGTH_PREFIX.unpack(head)[0]))
                if isinstance(request, LifespanStart):
                    sink.tell(_start_lifespans(request, lifespans, log_handler))
                else:
                    sink.tell(_run_request(request, sink, log_handler, life))
