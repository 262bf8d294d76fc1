"""Task: a function that can be enqueued, and Call: a task with options. Made by `@queue.task` and `task.options(…)`.

A call checks its arguments, makes them bytes, and hands them to where its queue lies: the server, or an outbox. What is around that, such as
spans and middleware, is looked for once and costs nothing where it is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

import msgspec

from qbull.config import check_name
from qbull.core.codec import decode_untyped
from qbull.core.durability import Durability
from qbull.core.ids import check_id, check_key
from qbull.core.record import DEFAULT_PRIORITY
from qbull.core.schedule import Schedule
from qbull.core.schedule_rule import ScheduleRule
from qbull.core.task import TaskSpec
from qbull.core.unique import Unique
from qbull.errors import ArgumentsError, NotConfirmed
from qbull.flows import Step
from qbull.job import Job
from qbull.middleware import Enqueueing
from qbull.observe.trace import Tracing
from qbull.options import DEFAULT_OPTIONS, EncodedArguments, Options
from qbull.produce import outbox_rows
from qbull.store.verbs.partition import UniqueJob

if TYPE_CHECKING:
    from qbull.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Call(Generic[P, R]):
    """A task with options: what `task.options(…)` gives."""

    def __init__(self, queue: Queue, spec: TaskSpec, options: Options = DEFAULT_OPTIONS) -> None:
        self._queue = queue
        self._app = queue.app
        self.spec = spec
        if options.unique is not None:
            queue.check_unique(spec, options.unique, ArgumentsError)
        elif spec.unique is not None:
            options = replace(options, unique=spec.unique)
        if options.expires is None and spec.expires is not None:
            options = replace(options, expires=spec.expires)
        self._options = options

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Check the arguments, store the job, and answer when the server has it."""
        if self._app.tracing is not None and self._options.trace is None:
            with self._traced(self._app.tracing) as traced:
                return await traced.enqueue(*args, **kwargs)
        if self._app.middleware.around_enqueue and self._options.headers is None:
            call = self._enqueueing([self._arguments(args, kwargs)])

            async def enqueue() -> list[Job[R]]:
                return [await self._with(call).enqueue(*args, **kwargs)]

            return (await self._app.middleware.enqueue(call, enqueue))[0]
        arguments = self._arguments(args, kwargs)
        if self._app.seals.used:
            arguments = self.sealed(arguments)
        if arguments.name:
            return (await self._enqueue_unique([arguments]))[0]
        if self._options.in_outbox:
            return (await self._write([arguments]))[0]
        client = self._app.client()
        durability = self._options.profile or self._app.durability
        who = (self._queue.settings, self._queue.tasks, durability)
        layout = client.known(*who) or await client.register(*who)
        placed = self._queue.place(layout, self.spec.name, arguments, self._options)
        try:
            created = await client.enqueue(self._queue.settings, placed, durability)
        except NotConfirmed as error:  # the others in its batch hear of it themselves
            raise error.of(self._queue.name, placed.job.id) from None
        return self._handle(placed.job.id, created)

    async def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """Enqueue many jobs in few calls. All arguments are checked before anything is sent."""
        if self._app.tracing is not None and self._options.trace is None:
            calls = list(calls)
            with self._traced(self._app.tracing, len(calls)) as traced:
                return await traced.enqueue_many(calls)
        if self._app.middleware.around_enqueue and self._options.headers is None:
            calls = list(calls)
            if calls:
                call = self._enqueueing(self._all_arguments(calls))
                return await self._app.middleware.enqueue(call, lambda: self._with(call).enqueue_many(calls))
        made = self._all_arguments(calls)
        if self._app.seals.used:
            made = [self.sealed(arguments) for arguments in made]
        if made and made[0].name:
            return await self._enqueue_unique(made)
        if self._options.in_outbox:
            return await self._write(made)
        client = self._app.client()
        durability = self._options.profile or self._app.durability
        who = (self._queue.settings, self._queue.tasks, durability)
        layout = client.known(*who) or await client.register(*who)
        jobs = [self._queue.place(layout, self.spec.name, arguments, self._options) for arguments in made]
        created = await client.enqueue_many(self._queue.settings, jobs, durability)
        return [self._handle(placed.job.id, answer) for placed, answer in zip(jobs, created, strict=True)]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same from synchronous code: Django, Flask, a script."""
        if self._app.tracing is not None and self._options.trace is None:
            with self._traced(self._app.tracing) as traced:
                return traced.enqueue_sync(*args, **kwargs)
        if self._options.transaction is not None:
            return self._write_sync([self._arguments(args, kwargs)])[0]
        return self._app.run_sync(self.enqueue(*args, **kwargs))

    def enqueue_many_sync(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """Many from synchronous code."""
        if self._app.tracing is not None and self._options.trace is None:
            calls = list(calls)
            with self._traced(self._app.tracing, len(calls)) as traced:
                return traced.enqueue_many_sync(calls)
        if self._options.transaction is not None:
            return self._write_sync(self._all_arguments(calls))
        return self._app.run_sync(self.enqueue_many(calls))

    @contextmanager
    def _traced(self, tracing: Tracing, many: int = 1) -> Iterator[Call[P, R]]:
        """The same call, whose jobs carry the span that is open meanwhile."""
        with tracing.send(self._queue.name, self.spec.name, many) as carried:
            yield Call(self._queue, self.spec, replace(self._options, trace=carried))

    def check(self, *args: P.args, **kwargs: P.kwargs) -> EncodedArguments:
        """Raise what `enqueue` would raise for these arguments, without enqueueing anything. Gives what would be sent."""
        return self._arguments(args, kwargs)

    def _enqueueing(self, made: list[EncodedArguments]) -> Enqueueing:
        return Enqueueing(self._queue.name, self.spec.name, [decode_untyped(each.payload) for each in made])

    def _with(self, call: Enqueueing) -> Call[P, R]:
        """The same call with what middleware sends along: headers, perhaps none, by which it is known to be within the hooks."""
        return Call(self._queue, self.spec, self.with_headers(call, self._options))

    def with_headers(self, call: Enqueueing, options: Options) -> Options:
        """These options with what middleware sends along."""
        for name, value in call.headers.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise ArgumentsError(f"header {name!r}: {value!r}: names and values of headers are texts")
        return replace(options, headers=call.headers)

    def sealed(self, arguments: EncodedArguments) -> EncodedArguments:
        """As they lie on the server."""
        if not self._app.seals.used:
            return arguments
        return msgspec.structs.replace(arguments, payload=self._queue.seal(self.spec.name, arguments.payload))

    def step(self, *args: P.args, **kwargs: P.kwargs) -> Step[R]:
        """This call as a part of a flow: `qbull.chain(a.step(1), b.step(2))`. Checks the arguments, sends nothing."""
        options = self._options
        refused = ("transaction", "unique", "durability")
        for name in refused:
            if getattr(options, name) is not None:
                raise ArgumentsError(
                    f'task "{self.spec.name}": {name} is not for steps of a flow; leave it out'
                )
        arguments = self._arguments(args, kwargs)
        return Step(self, self._queue, arguments, options)

    async def _enqueue_unique(self, calls: list[EncodedArguments]) -> list[Job[R]]:
        unique, client, settings = self._options.unique, self._app.client(), self._queue.settings
        assert unique is not None
        durability = self._options.profile or self._app.durability
        layout = await client.register(settings, self._queue.tasks, durability)
        jobs = []
        for arguments in calls:
            placed = self._queue.place(layout, self.spec.name, arguments, self._options)
            job = UniqueJob(*placed.job, arguments.name, unique.mode, unique.window_ms)
            jobs.append((placed, job))
        return [self._handle(*answer) for answer in await client.enqueue_unique(settings, jobs, durability)]

    async def _write(self, calls: list[EncodedArguments]) -> list[Job[R]]:
        """Into the outbox: the relay enqueues them when the transaction is committed."""
        return self._on_their_way(await outbox_rows.write(self._queue, self.spec.name, calls, self._options))

    def _write_sync(self, calls: list[EncodedArguments]) -> list[Job[R]]:
        if not self._app.middleware.around_enqueue:
            return self._write_rows(calls)
        call = self._enqueueing(calls)
        hooks = self._app.middleware
        return hooks.enqueue_sync(call, lambda: self._with(call)._write_rows(calls), self._app.run_sync)

    def _write_rows(self, calls: list[EncodedArguments]) -> list[Job[R]]:
        if self._app.seals.used:
            calls = [self.sealed(arguments) for arguments in calls]
        return self._on_their_way(outbox_rows.write_sync(self._queue, self.spec.name, calls, self._options))

    def _on_their_way(self, ids: list[str]) -> list[Job[R]]:
        decode = self.spec.signature.decode_result
        return [self._queue.handle(id, True, decode, expected=True) for id in ids]

    def _all_arguments(self, calls: Iterable[Mapping[str, Any]]) -> list[EncodedArguments]:
        if self._options.id is not None:
            raise ArgumentsError(
                f'task "{self.spec.name}": one id cannot serve many jobs; declare the task with id="…{{argument}}"'
            )
        return [self._arguments((), dict(call)) for call in calls]

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EncodedArguments:
        spec, options = self.spec, self._options
        payload, call = spec.signature.encode(args, kwargs, self._app.payload_limit)
        key, id = options.key, options.id
        if (key is None and spec.key is not None) or (id is None and spec.id is not None):
            arguments = msgspec.structs.asdict(call)
            key = key if key is not None or spec.key is None else check_key(spec.key.apply(arguments))
            id = id if id is not None or spec.id is None else check_id(spec.id.apply(arguments))
        name = ""
        if options.unique is not None:
            laned = key if self._queue.settings.lane_limit else None
            name = options.unique.name(spec.name, payload, laned)
        return EncodedArguments(payload, key, id, name)

    def _handle(self, id: str, created: bool) -> Job[R]:
        return Job(self._queue, id, self.spec.signature.decode_result, created=created)


class Task(Call[P, R]):
    """A function that can be enqueued. Called directly it is still the function."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def queue(self) -> Queue:
        return self._queue

    def __repr__(self) -> str:
        return f"<Task {self._queue.name}.{self.name}>"

    def schedule(self, name: str, rule: ScheduleRule, args: Mapping[str, Any]) -> Schedule:
        """This task by a rule, with these arguments. What is wrong with either is raised here, not at the first tick."""
        check_name("schedule", name)
        try:
            payload, call = self.spec.signature.encode((), dict(args), self._app.payload_limit)
            template = self.spec.key
            key = check_key(template.apply(msgspec.structs.asdict(call))) if template is not None else None
        except ArgumentsError as error:
            raise ArgumentsError(f'schedule "{name}": {error}') from None
        zone = self._app.environment.timezone
        return rule.schedule(name, self._queue.name, self.name, payload, key, zone)

    def options(
        self,
        *,
        delay: float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        key: str | None = None,
        id: str | None = None,
        timeout: float | None = None,
        transaction: Any = None,
        durability: Durability | Literal["outbox"] | None = None,
        unique: Unique | None = None,
        expires: float | datetime | None = None,
    ) -> Call[P, R]:
        """`await task.options(delay=60).enqueue(…)`: seconds from now, a moment, 1 (first) to 10 (last), a key, an id.

        With `transaction`, a connection to PostgreSQL, the job is enqueued when that is committed, and never otherwise.
        With `durability="outbox"` its row stays there until it has ended.
        """
        priority = DEFAULT_PRIORITY if priority is None else priority
        return Call(
            self._queue,
            self.spec,
            Options(delay, at, priority, key, id, timeout, transaction, durability, unique, expires),
        )


class AsyncTask(Task[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = self.spec.function(*args, **kwargs)
        return result


class PlainTask(Task[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.spec.function(*args, **kwargs)
        return result


class ChunkTask(Task[[T], R]):
    """A function of a list, whose items are enqueued one by one."""

    def __call__(self, items: list[T]) -> Any:
        return self.spec.function.function(items)  # type: ignore[attr-defined]


class DeclareChunk(Protocol):
    """What `@queue.task(chunk=…)` gives: it takes a function of a list."""

    @overload
    def __call__(self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /) -> ChunkTask[T, None]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Coroutine[Any, Any, list[R]]], /) -> ChunkTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], list[R]], /) -> ChunkTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], None], /) -> ChunkTask[T, None]: ...


class DeclareTask(Protocol):
    """What `@queue.task(…)` gives: it takes the function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
