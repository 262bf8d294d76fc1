"""Queue: declare what can be done, and look at what becomes of it. What asks for it to be done is in task.py."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from qbull.codecs.payload import CodecChain
from qbull.config import Environment, QueueSettings, check_name
from qbull.core.codec import ArgumentTemplate, Signature, decode_untyped, encode_payload
from qbull.core.durability import Durability
from qbull.core.ids import check_id, new_id
from qbull.core.job_info import JobInfo
from qbull.core.layout import GENERATION_SPAN_PARTITIONS, Layout
from qbull.core.record import (
    DEFAULT_PRIORITY,
    REPORT_ALL_FLAG,
    REPORT_END_FLAG,
    STATES,
    Body,
    ExtendedBody,
    State,
    pack,
)
from qbull.core.retry import Retry
from qbull.core.route import digest, unique_name_lane
from qbull.core.schedule import Schedule
from qbull.core.schedule_rule import ScheduleOptions, ScheduleRule
from qbull.core.task import TaskSpec, task_kind
from qbull.core.unique import Unique
from qbull.errors import (
    MAX_COUNT,
    MAX_DELAY_SECONDS,
    ArgumentsError,
    ConfigError,
    DeclarationError,
    QbullError,
)
from qbull.events import Event, follow_events
from qbull.job import Job
from qbull.manage.live_settings import QueueControls
from qbull.manage.repartition import Repartitionable
from qbull.manage.search import DeadLetters
from qbull.middleware import MiddlewareChain
from qbull.observe.trace import Tracing
from qbull.options import DEFAULT_OPTIONS, EncodedArguments, Options, check_expires
from qbull.produce.client import Client, PlacedJob
from qbull.store.read import inspect
from qbull.store.read.inspect import Counts, StoredJob
from qbull.store.read.pages import page
from qbull.store.verbs import live_settings
from qbull.store.verbs.partition import NewJob, Partition
from qbull.task import AsyncTask, ChunkTask, DeclareChunk, DeclareTask, PlainTask, Task
from qbull.worker.chunk_signature import DEFAULT_CHUNK_WAIT_SECONDS, make_chunk

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
T = TypeVar("T")


class QueueApp(Protocol):
    """What a queue needs of its app."""

    prefix: str
    database: str | None
    payload_limit: int
    durability: Durability | None
    tracing: Tracing | None
    environment: Environment
    declared: dict[str, Schedule]
    middleware: MiddlewareChain
    seals: CodecChain

    def client(self) -> Client: ...
    def run_sync(self, coroutine: Coroutine[Any, Any, A], /) -> A: ...


class Queue(QueueControls, DeadLetters, Repartitionable):
    """A named set of partitions with settings. Made by `app.queue(…)`."""

    def __init__(self, app: QueueApp, settings: QueueSettings) -> None:
        self.app: QueueApp = app
        self.settings = settings
        self.tasks: dict[str, TaskSpec] = {}
        self._is_usual = not settings.has_single_lane and not settings.reports
        self._spread = itertools.count(random.randrange(GENERATION_SPAN_PARTITIONS))  # noqa: S311

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def name(self) -> str:
        return self.settings.name

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        id: str | Callable[..., str] | None = None,
        key: str | Callable[..., str] | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        unique: Unique | None = None,
        expires: float | None = None,
        cpu: bool = False,
    ) -> DeclareTask: ...
    @overload
    def task(
        self,
        /,
        *,
        chunk: int,
        wait: float = DEFAULT_CHUNK_WAIT_SECONDS,
        name: str | None = None,
        id: str | Callable[..., str] | None = None,
        key: str | Callable[..., str] | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        unique: Unique | None = None,
        expires: float | None = None,
    ) -> DeclareChunk: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        id: str | Callable[..., str] | None = None,
        key: str | Callable[..., str] | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        unique: Unique | None = None,
        expires: float | None = None,
        cpu: bool = False,
        chunk: int | None = None,
        wait: float = DEFAULT_CHUNK_WAIT_SECONDS,
    ) -> Any:
        """Register a function as a task: `@queue.task`, or `@queue.task(name=…, id=…, key=…, retry=…, timeout=…, cpu=…)`.

        `id` and `key` are templates over the arguments ("email:verify:{user_id}") or functions of them. `unique` says which
        of several calls count, `expires` in how many seconds a job of it must begin. With `chunk` the function takes a list, of
        up to so many jobs.
        """

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            named = name or str(getattr(function, "__name__", ""))
            if chunk is not None:
                together, one = make_chunk(self.settings, named, function, chunk, wait)
                if cpu:
                    raise DeclarationError(f'task "{named}": chunk and cpu: give one of them')
                spec = self._specify(one, named, id, key, retry, timeout, unique, expires, cpu)
                self.tasks[named] = spec = replace(spec, function=together, kind="async")
                return ChunkTask(self, spec)
            spec = self._specify(function, named, id, key, retry, timeout, unique, expires, cpu)
            return AsyncTask(self, spec) if spec.kind == "async" else PlainTask(self, spec)

        return declare if function is None else declare(function)

    def cron(
        self,
        expression: str | None = None,
        /,
        *,
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        **rule: Unpack[ScheduleOptions],
    ) -> DeclareTask:
        """Run a task by a schedule: `@queue.cron("0 9 * * *", tz="Europe/Berlin")`, or `every=` seconds.

        Put on a function it makes a task of it, under the same name; put on a task, with `args`, it can be there several times.
        """

        def declare(function: Callable[..., Any]) -> Any:
            task = function if isinstance(function, Task) else self.task(name=name)(function)
            schedule = task.schedule(name or task.name, ScheduleRule(expression, **rule), args or {})
            if schedule.name in self.app.declared:
                raise DeclarationError(
                    f'schedule "{schedule.name}": declared twice; give one of them another name=…'
                )
            self.app.declared[schedule.name] = schedule
            return task

        return declare

    def events(self, after: str | datetime | None = None) -> AsyncGenerator[Event, None]:
        """What becomes of jobs: `async for event in queue.events()`. From now on, or after the place of an event or a moment."""
        return follow_events(self.app.client(), [self.settings], after)

    async def stats(self) -> Counts:
        """How many jobs are in which state, over all partitions."""
        client = self.app.client()
        partitions = await client.partitions(self.settings)
        counts = await inspect.counts(partitions)
        paused = await live_settings.is_paused(client.store, self.name)
        total = sum(counts[1:], counts[0])
        return replace(total, paused=paused, totals=client.totals(self.settings, total.totals))

    async def jobs(self, state: State, start: int = 0, end: int = 10) -> list[JobInfo]:
        """Jobs of one state: finished ones newest first, others in the order in which they will run."""
        if state not in STATES:
            raise ConfigError(f"state {state!r}: use one of {', '.join(STATES)}")
        if not 0 <= start <= end <= MAX_COUNT or end - start > 1000:
            raise ConfigError(f"jobs from {start} to {end}: give 0 <= start <= end, at most 1,000 at a time")
        found = await page(await self._partitions(), state, start, end)
        return [self._info(job) for job in found]

    def job(self, id: str) -> Job[Any]:
        """The handle of a job from its id."""
        return self.handle(check_id(id))

    def new_id(self) -> str:
        """An id for a job whose partition will be decided later."""
        return new_id(next(self._spread) % self.settings.partitions)

    def handle(
        self,
        id: str,
        created: bool = False,
        decode: Callable[[bytes], Any] = decode_untyped,
        *,
        expected: bool = False,
    ) -> Job[Any]:
        """The same for an id that is known to be one."""
        return Job(self, id, decode, created=created, expected=expected)

    def edited(self, body: Body, payload: Mapping[str, Any]) -> bytes:
        """Other arguments for a job, checked where the code of its task is here. They must not give it another key."""
        spec = self.tasks.get(body.task)
        if spec is None:
            return self.seal(body.task, encode_payload(body.task, payload, self.app.payload_limit))
        encoded, call = spec.signature.encode((), dict(payload), self.app.payload_limit)
        if spec.key is not None:
            key = spec.key.apply(msgspec.structs.asdict(call))
            if key != body.key and spec.key.apply(self._arguments_of(spec, body)) == body.key:
                raise ArgumentsError(
                    f'task "{spec.name}": these arguments have the key "{key}", the job has "{body.key}"; '
                    "enqueue a new job, and remove() this one"
                )
        return self.seal(body.task, encoded)

    def _arguments_of(self, spec: TaskSpec, body: Body) -> dict[str, Any]:
        return spec.signature.arguments(self.app.seals.open("payload", self.name, body.task, body.payload))

    def seal(self, task: str, payload: bytes) -> bytes:
        """Arguments as they lie on the server: compressed, encrypted, signed, as the app says."""
        return self.app.seals.seal("payload", self.name, task, payload)

    def open_result(self, task: str, result: bytes) -> bytes:
        """The opposite, of a result. Raises PayloadError where this app cannot."""
        return self.app.seals.open("result", self.name, task, result)

    def attempts_of(self, task: str) -> int:
        """How often a job of this task is tried at most."""
        spec = self.tasks.get(task)
        return spec.retry.attempts if spec is not None else self.settings.retry.attempts

    def _client(self) -> Client:
        return self.app.client()

    async def _partitions(self) -> list[Partition]:
        client = self.app.client()
        await client.store.open()
        return await client.partitions(self.settings)

    def _info(self, job: StoredJob) -> JobInfo:
        return job.info(self.name, self.attempts_of(job.body().task))

    def _specify(
        self,
        function: Callable[..., Any],
        name: str,
        id: str | Callable[..., str] | None,
        key: str | Callable[..., str] | None,
        retry: Retry | None,
        timeout: float | None,
        unique: Unique | None,
        expires: float | None,
        cpu: bool,
    ) -> TaskSpec:
        if not name:
            raise DeclarationError(f"{function!r} has no name of its own; give the task one with name=…")
        check_name("task", name)
        if name in self.tasks:
            raise DeclarationError(
                f'queue "{self.name}": task "{name}" is there twice; give one of them another name=…'
            )
        if timeout is not None and not 0 < timeout <= MAX_DELAY_SECONDS:
            raise DeclarationError(f'task "{name}": timeout={timeout}: must be more than 0 seconds, or None')
        if expires is not None:
            check_expires(expires, DeclarationError, f'task "{name}": ')
        signature = Signature(name, function)
        self.tasks[name] = spec = TaskSpec(
            name=name,
            function=function,
            signature=signature,
            kind=task_kind(name, function, cpu=cpu),
            retry=retry or self.settings.retry,
            timeout=timeout if timeout is not None else self.settings.timeout,
            id=ArgumentTemplate("id", id, signature) if id is not None else None,
            key=ArgumentTemplate("key", key, signature) if key is not None else None,
            unique=unique,
            expires=expires,
        )
        if unique is not None:
            self.check_unique(spec, unique, DeclarationError)
        return spec

    def check_unique(self, spec: TaskSpec, unique: Unique, refusal: type[QbullError]) -> None:
        """Does it fit the task and the queue?"""
        for name in unique.by or ():
            if name not in spec.signature.parameters:
                known = ", ".join(spec.signature.parameters) or "none"
                raise refusal(
                    f'task "{spec.name}": unique by "{name}", but it has no argument "{name}"; it has: {known}'
                )
        if spec.id is not None:
            raise refusal(f'task "{spec.name}": id and unique: give one of them')
        if unique.mode == "after" and self.settings.lane_limit > 1:
            raise refusal(
                f'task "{spec.name}": Unique(mode="after") runs one at a time, '
                f"Lane(limit={self.settings.lane_limit}) more; choose one of them"
            )

    def place(self, layout: Layout, task: str, arguments: EncodedArguments, options: Options) -> PlacedJob:
        """The partition and the job, complete before anything is sent, so that sending twice is harmless."""
        payload, key, id = arguments.payload, arguments.key, arguments.id
        name, row = arguments.name, arguments.row
        if options is DEFAULT_OPTIONS and self._is_usual and not (key or id or name or row):  # most of them
            number = layout.any_home(next(self._spread))
            record = pack(Body(task, payload), priority=DEFAULT_PRIORITY, lane=b"")
            return PlacedJob(number, NewJob(new_id(number), 0, record), plain=True)
        key_digest = digest(key) if key is not None else None
        together = key_digest if self.settings.lane_limit else None
        if key_digest is not None and (together is not None or (id is None and not name)):
            number = layout.home(key_digest)
        elif name:  # the same window is always met in the same partition
            number = layout.home(bytes.fromhex(name)[:8])
        elif (
            id is not None
        ):  # no lane asks for its key: the id alone decides, it is taken for the whole queue
            number = layout.home_of_id(id)
        else:
            number = layout.any_home(next(self._spread))
        body = Body(task, payload, key, 1, 0, options.timeout)
        if options.end_ms is not None or name or row or options.trace or options.headers:
            rare = "" if together is not None else name
            trace = options.trace or ""
            body = ExtendedBody(
                task, payload, key, 1, 0, options.timeout,
                expires=options.end_ms, unique=rare, row=row, trace=trace, headers=options.headers,
            )  # fmt: skip
        lane = self.settings.lane_of(key_digest)
        if name and not lane and options.unique is not None and options.unique.mode == "after":
            lane = unique_name_lane(name)
        reports = self.settings.reports
        if options.durability == "outbox":
            reports |= REPORT_END_FLAG
        record = pack(body, priority=options.priority, lane=lane, reports=reports)
        if id is not None:
            return PlacedJob(number, NewJob(id, options.when, record), together, given=True)
        is_usual = options.when == 0 and options.priority == DEFAULT_PRIORITY
        plain = is_usual and not lane and reports < REPORT_ALL_FLAG
        return PlacedJob(number, NewJob(new_id(number), options.when, record), together, plain=plain)
