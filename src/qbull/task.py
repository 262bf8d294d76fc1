"""Task: a function that can be enqueued, and Call: a task with options.

`@queue.task` and `task.options(…)` make them. produce/enqueue.py turns a call into a job.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

import msgspec
from msgspec.structs import replace

from qbull.core.codec import ArgumentTemplate, Signature
from qbull.core.demand import AskedLabels, AskedResources, make_demand
from qbull.core.durability import Durability
from qbull.core.hints import TASK_HINTS, TASK_OPTION_HINTS, explain_keyword, refuse_unknown
from qbull.core.ids import check_key, check_name
from qbull.core.limits import LimitArgument, check_one_declaration, task_limits
from qbull.core.options import DEFAULT_OPTIONS, Options, check_expires
from qbull.core.record import DEFAULT_PRIORITY
from qbull.core.retry import Retry
from qbull.core.schedule import Schedule
from qbull.core.schedule_rule import ScheduleRule
from qbull.core.task import TaskSpec, in_notebook, is_redeclared, task_kind
from qbull.core.unique import Unique
from qbull.core.values import DecHook, EncHook, make_hooks
from qbull.errors import MAX_DELAY_SECONDS, ArgumentsError, DeclarationError
from qbull.flows import Step
from qbull.produce.enqueue import Calling, check_unique
from qbull.worker.chunk_signature import DEFAULT_CHUNK_WAIT_SECONDS, make_chunk

if TYPE_CHECKING:
    from qbull.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Call(Calling[P, R]):
    """A task with options, as `task.options(…)` returns it. It is enqueued like the task itself."""

    def step(self, *args: P.args, **kwargs: P.kwargs) -> Step[R]:
        """This call as a part of a flow: `qbull.chain(a.step(1), b.step(2))`.

        Checks the arguments and sends nothing.

        Args:
            args: the arguments of the task.
            kwargs: the arguments of the task, by name.
        """
        for name in ("transaction", "unique", "durability"):
            if getattr(self._options, name) is not None:
                raise ArgumentsError(
                    f'task "{self.spec.name}": {name} is not for steps of a flow; leave it out'
                )
        return Step(self, self._queue, self.check(*args, **kwargs), self._options)


class Task(Call[P, R]):
    """A function that can be enqueued. Called directly it is still the function.

    `@queue.task` makes it. It keeps the name, the docstring and the signature of the function.

    Args:
        queue: its queue.
        spec: the function with the settings of the task.
        options: the options of its jobs.
    """

    def __init__(self, queue: Queue, spec: TaskSpec, options: Options = DEFAULT_OPTIONS) -> None:
        super().__init__(queue, spec, options)
        # The caller of a chunk holds the function of the user.
        wrapped: Any = self
        update_wrapper(wrapped, getattr(spec.function, "function", spec.function), updated=())

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def queue(self) -> Queue:
        return self._queue

    def __repr__(self) -> str:
        return f"<Task {self._queue.name}.{self.name}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            refuse_unknown(self, name, TASK_HINTS, task=self.spec.name)

    def schedule(self, name: str, rule: ScheduleRule, args: Mapping[str, Any]) -> Schedule:
        """A schedule of this task. Errors in the rule or the arguments are raised here, not at the first run.

        Args:
            name: the name of the schedule.
            rule: when it runs.
            args: the arguments of the runs, by name.
        """
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
        weight: int | None = None,
    ) -> Call[P, R]:
        """The task with options: `await task.options(delay=60).enqueue(…)`.

        Args:
            delay: seconds until the job may run.
            at: time from which the job may run, with a time zone.
            priority: 1 runs first, 10 runs last; 5 by default.
            key: the key that the job is ordered and limited by, instead of the task's own.
            id: the id of the job. While a job with this id is in the queue, a second one adds nothing.
            timeout: seconds that one attempt may take.
            expires: seconds or time until which the job must start; if not, it is cancelled.
            unique: of several calls for the same thing, only one counts.
            transaction: a PostgreSQL connection; the job is enqueued when its transaction commits, and only
                then.
            durability: how safe the job must be before the call returns. With "outbox", the row in PostgreSQL
                stays until the job has ended.
            weight: how much of its shared limits the job takes, instead of the task's weight.
        """
        priority = DEFAULT_PRIORITY if priority is None else priority
        return Call(
            self._queue,
            self.spec,
            Options(delay, at, priority, key, id, timeout, transaction, durability, unique, expires, weight),
        )


class AsyncTask(Task[P, R]):
    """A coroutine function that can be enqueued."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = self.spec.function(*args, **kwargs)
        return result


class PlainTask(Task[P, R]):
    """A plain function that can be enqueued."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.spec.function(*args, **kwargs)
        return result


class ChunkTask(Task[[T], R]):
    """A function of a list, whose items are enqueued one by one."""

    def __call__(self, items: list[T]) -> Any:
        return self.spec.function.function(items)  # type: ignore[attr-defined]


class DeclareChunk(Protocol):
    """The decorator that `@queue.task(chunk=…)` returns. It takes a function of a list."""

    @overload
    def __call__(self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /) -> ChunkTask[T, None]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Coroutine[Any, Any, list[R]]], /) -> ChunkTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], list[R]], /) -> ChunkTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], None], /) -> ChunkTask[T, None]: ...


class DeclareTask(Protocol):
    """The decorator that `@queue.task(…)` returns. It takes the function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class TaskSettings(TypedDict, total=False):
    """The settings that every kind of task has. `Queue.task` describes them."""

    name: str | None
    id: str | Callable[..., str] | None
    key: str | Callable[..., str] | None
    retry: Retry | None
    timeout: float | None
    unique: Unique | None
    expires: float | None
    durable: bool
    limit: LimitArgument | None
    labels: AskedLabels | None
    resources: AskedResources | None
    enc_hook: EncHook | None
    dec_hook: DecHook | None


class TaskDeclaration(msgspec.Struct, frozen=True):
    """The arguments of `@queue.task(…)`, and how they turn a function into a task."""

    name: str | None = None
    id: str | Callable[..., str] | None = None
    key: str | Callable[..., str] | None = None
    retry: Retry | None = None
    timeout: float | None = None
    unique: Unique | None = None
    expires: float | None = None
    durable: bool = False
    limit: LimitArgument | None = None
    labels: AskedLabels | None = None
    resources: AskedResources | None = None
    enc_hook: EncHook | None = None
    dec_hook: DecHook | None = None
    cpu: bool = False
    chunk: int | None = None
    wait: float = DEFAULT_CHUNK_WAIT_SECONDS

    @classmethod
    def of(cls, **settings: Any) -> TaskDeclaration:
        """Check the names of the arguments, because the error of a struct would name this class."""
        known = list(cls.__struct_fields__)
        for name, value in settings.items():
            if name not in known:
                meant = explain_keyword(name, known, TASK_OPTION_HINTS)
                raise DeclarationError(f"@queue.task({name}={value!r:.40}): is no setting of a task; {meant}")
        return cls(**settings)

    def declare(self, queue: Queue, function: Callable[..., Any]) -> Task[..., Any]:
        """Register a function as a task of a queue."""
        name = self.name or str(getattr(function, "__name__", ""))
        if self.chunk is None:
            spec = self._spec(queue, name, function)
            queue.tasks[name] = spec
            return AsyncTask(queue, spec) if spec.kind == "async" else PlainTask(queue, spec)
        caller, one = make_chunk(queue.settings, name, function, self.chunk, self.wait)
        if self.cpu:
            raise DeclarationError(f'task "{name}": chunk and cpu: give one of them')
        spec = replace(self._spec(queue, name, one), function=caller, kind="async")
        queue.tasks[name] = spec
        return ChunkTask(queue, spec)

    def _defaults(self) -> Options:
        if self.unique is None and self.expires is None:
            return DEFAULT_OPTIONS
        return Options(unique=self.unique, expires=self.expires)

    def _spec(self, queue: Queue, name: str, function: Callable[..., Any]) -> TaskSpec:
        if not name:
            raise DeclarationError(f"{function!r} has no name of its own; give the task one with name=…")
        check_name("task", name)
        if name in queue.tasks and not is_redeclared(queue.tasks[name].function, function):
            raise DeclarationError(
                f'queue "{queue.name}": task "{name}" is there twice; give one of them another name=…'
            )
        timeout = self.timeout
        if timeout is not None and not 0 < timeout <= MAX_DELAY_SECONDS:
            raise DeclarationError(f'task "{name}": timeout={timeout}: must be more than 0 seconds, or None')
        if self.expires is not None:
            check_expires(self.expires, DeclarationError, f'task "{name}": ')
        if self.durable and (self.cpu or self.chunk is not None):
            other = "cpu" if self.cpu else "chunk"
            raise DeclarationError(f'task "{name}": durable and {other}: give one of them')
        hooks = make_hooks(self.enc_hook, self.dec_hook, queue.app._hooks)
        signature = Signature(name, function, hooks)
        spec = TaskSpec(
            name=name,
            function=function,
            signature=signature,
            kind=task_kind(name, function, cpu=self.cpu),
            retry=self.retry or queue.settings.retry,
            timeout=timeout if timeout is not None else queue.settings.timeout,
            id=ArgumentTemplate("id", self.id, signature) if self.id is not None else None,
            key=ArgumentTemplate("key", self.key, signature) if self.key is not None else None,
            defaults=self._defaults(),
            durable=self.durable,
            limits=task_limits(self.limit if self.limit is not None else queue.limit, signature),
            demand=make_demand(
                f'task "{name}"',
                self.labels if self.labels is not None else queue.labels,
                self.resources if self.resources is not None else queue.resources,
            ),
        )
        if self.unique is not None:
            check_unique(queue, spec, self.unique, DeclarationError)
        if not in_notebook():
            check_one_declaration(queue.app.limits._declared, spec.limits)
        return spec
