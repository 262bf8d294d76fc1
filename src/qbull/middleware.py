"""Middleware: the user's code around every enqueue and every run, which also learns how each job ended.

`App(middleware=[…])` takes a list, of which the first is the outermost; the app makes a `MiddlewareChain` of
it. A hook that nobody has written is never looked up for a job, so an app without middleware pays nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from qbull.errors import ConfigError

if TYPE_CHECKING:
    from qbull.worker.current import CurrentJob

A = TypeVar("A")
J = TypeVar("J", bound="EnqueuedJob")
HookContext = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
RunEnd = Literal["completed", "delayed", "failed", "cancelled"]
RunCoroutine = Callable[[Coroutine[Any, Any, Any]], Any]

log = logging.getLogger("qbull")


class EnqueuedJob(Protocol):
    """A job, as `enqueue` gives it."""

    id: str
    created: bool


@dataclass
class Enqueueing:
    """Calls of a task that are about to become jobs.

    Args:
        queue: the name of the queue.
        task: the name of the task.
        arguments: the arguments of each call by name, read-only.
        headers: values to send along. Add yours: tasks read them as `current_job().headers`.
        jobs: the jobs, in the order of the calls; empty until they are enqueued.
    """

    queue: str
    task: str
    arguments: list[dict[str, Any]]
    headers: dict[str, str] = field(default_factory=dict)
    jobs: list[EnqueuedJob] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Settled:
    """The end of a run.

    Args:
        id: the id of the job.
        queue: the name of its queue.
        task: the name of its task.
        key: its key; None for a job without one.
        attempt: the number of the attempt, from 1.
        state: the state of the job now. A `delayed` job runs again.
        duration: the seconds that the run took.
        error: the error of a run that did not succeed.
        delay: the seconds until a `delayed` job runs again.
    """

    id: str
    queue: str
    task: str
    key: str | None
    attempt: int
    state: RunEnd
    duration: float
    error: str | None = None
    delay: float | None = None


class Middleware:
    """The base of your own middleware. Write the hooks that you need; the others cost nothing."""

    def around_enqueue(self, call: Enqueueing) -> HookContext:
        """A context manager around `enqueue`: @contextmanager, or @asynccontextmanager.

        An exception before the yield refuses the call.

        Args:
            enqueue: the calls.
        """
        raise NotImplementedError

    def around_run(self, job: CurrentJob) -> HookContext:
        """A context manager around each run of a task, in the worker.

        Its exceptions count as raised by the run.

        Args:
            job: the running job.
        """
        raise NotImplementedError

    def around_call(self, job: CurrentJob) -> AbstractContextManager[Any]:
        """A synchronous context manager within `around_run`, in the thread of the function.

        Use it for thread-local state.

        Args:
            job: the running job.
        """
        raise NotImplementedError

    def settled(self, run: Settled) -> None:
        """A plain function that is called after each run.

        It must not block: the worker waits until it returns.

        Args:
            outcome: how the run ended.
        """
        raise NotImplementedError


class MiddlewareChain:
    """The middleware of one app, sorted by hook."""

    def __init__(self, middleware: Sequence[Middleware] = ()) -> None:
        if isinstance(middleware, Middleware):
            raise ConfigError(f"middleware={middleware!r}: give a list of qbull.Middleware")
        self.all = middleware = tuple(middleware)
        if not all(isinstance(each, Middleware) for each in middleware):
            raise ConfigError(f"middleware={list(middleware)!r}: give a list of qbull.Middleware")
        self.around_enqueue = _overridden(middleware, "around_enqueue")
        self.around_run = _overridden(middleware, "around_run")
        self.around_call = _overridden(middleware, "around_call")
        self.settled = _overridden(middleware, "settled")
        for hook in (*self.around_enqueue, *self.around_run, *self.around_call):
            if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
                raise ConfigError(
                    f"{_hook_name(hook)}: decorate it with @contextmanager or @asynccontextmanager"
                )
        for hook in self.settled:
            if inspect.iscoroutinefunction(hook):
                raise ConfigError(
                    f"{_hook_name(hook)}: must be a plain function; it is called between two jobs"
                )

    async def enqueue(self, call: Enqueueing, enqueue: Callable[[], Awaitable[list[J]]]) -> list[J]:
        """Enqueue within the hooks.

        Errors of hooks before the enqueue are raised; errors after it are logged.
        """
        stack = AsyncExitStack()
        try:
            for hook in self.around_enqueue:
                await _enter(stack, hook, hook(call))
            jobs = await enqueue()
        except BaseException as error:
            await _leave_failed(stack, error)
            raise
        call.jobs = list(jobs)
        try:
            await stack.aclose()
        except Exception:
            _log_late_error(call)
        return jobs

    def enqueue_sync(self, call: Enqueueing, enqueue: Callable[[], list[J]], run: RunCoroutine) -> list[J]:
        """The same where no event loop runs; `run` has one, for hooks that need it."""
        stack = ExitStack()
        try:
            for hook in self.around_enqueue:
                _enter_sync(stack, hook, hook(call), run)
            jobs = enqueue()
        except BaseException as error:
            try:
                stack.__exit__(type(error), error, error.__traceback__)
            except BaseException as other:
                if other is not error:
                    log.warning("middleware: %r while it handled: %r", other, error)
            raise
        call.jobs = list(jobs)
        try:
            stack.close()
        except Exception:
            _log_late_error(call)
        return jobs

    async def run(self, job: CurrentJob, call: Callable[[], Awaitable[A]], swallowed: A) -> A:
        """One run of a task within the hooks.

        If a hook suppresses an exception of the task, the result is `swallowed`.
        """
        async with AsyncExitStack() as stack:
            for hook in self.around_run:
                await _enter(stack, hook, hook(job))
            return await call()
        return swallowed  # type: ignore[unreachable]  # mypy does not know that a stack may swallow

    def run_sync(self, job: CurrentJob, call: Callable[[], A], swallowed: A, run: RunCoroutine) -> A:
        """The same where no event loop runs; `run` has one, for hooks that need it."""
        with ExitStack() as stack:
            for hook in self.around_run:
                _enter_sync(stack, hook, hook(job), run)
            return call()
        return swallowed  # type: ignore[unreachable]

    @contextmanager
    def calling(self, job: CurrentJob) -> Iterator[None]:
        """The hooks around the function itself."""
        with ExitStack() as stack:
            for hook in self.around_call:
                around = hook(job)
                if not hasattr(around, "__enter__"):
                    raise ConfigError(
                        f"{_hook_name(hook)}: must be synchronous; decorate it with @contextmanager"
                    )
                stack.enter_context(around)
            yield

    def call(self, job: CurrentJob, function: Callable[..., A], /, *args: Any, **kwargs: Any) -> A | None:
        """Run a plain function within the hooks."""
        if not self.around_call:
            return function(*args, **kwargs)
        with self.calling(job):
            return function(*args, **kwargs)
        return None  # type: ignore[unreachable]

    async def acall(
        self, job: CurrentJob, function: Callable[..., Awaitable[A]], /, *args: Any, **kwargs: Any
    ) -> A | None:
        """Run a coroutine function within the hooks."""
        if not self.around_call:
            return await function(*args, **kwargs)
        with self.calling(job):
            return await function(*args, **kwargs)
        return None  # type: ignore[unreachable]

    def tell(self, run: Settled) -> None:
        for hook in self.settled:
            try:
                hook(run)
            except Exception:
                log.exception("%s: failed; job %s is settled all the same", _hook_name(hook), run.id)


def _overridden(middleware: Sequence[Middleware], name: str) -> tuple[Callable[..., Any], ...]:
    return tuple(
        getattr(each, name)
        for each in middleware
        if getattr(type(each), name) is not getattr(Middleware, name)
    )


async def _enter(stack: AsyncExitStack, hook: Callable[..., Any], around: object) -> None:
    if hasattr(around, "__aenter__"):
        await stack.enter_async_context(around)  # type: ignore[arg-type]
    elif hasattr(around, "__enter__"):
        stack.enter_context(around)  # type: ignore[arg-type]
    else:
        raise _not_a_context(hook, around)


def _enter_sync(stack: ExitStack, hook: Callable[..., Any], around: Any, run: RunCoroutine) -> None:
    if hasattr(around, "__enter__"):
        stack.enter_context(around)
    elif hasattr(around, "__aenter__"):
        run(around.__aenter__())
        stack.push(lambda *raised: run(around.__aexit__(*raised)))
    else:
        raise _not_a_context(hook, around)


async def _leave_failed(stack: AsyncExitStack, error: BaseException) -> None:
    """Raise the original error to the caller, not the one that middleware made from it."""
    try:
        await stack.__aexit__(type(error), error, error.__traceback__)
    except BaseException as other:
        if other is not error:
            log.warning("middleware: %r while it handled: %r", other, error)


def _log_late_error(call: Enqueueing) -> None:
    ids = ", ".join(job.id for job in call.jobs[:3]) + (" …" if len(call.jobs) > 3 else "")
    log.exception('queue "%s": middleware failed when %s had been enqueued', call.queue, ids)


def _not_a_context(hook: Callable[..., Any], around: object) -> ConfigError:
    if inspect.iscoroutine(around):
        around.close()
    return ConfigError(
        f"{_hook_name(hook)}: gave {around!r}, no context manager; "
        "decorate it with @contextmanager or @asynccontextmanager"
    )


def _hook_name(hook: Callable[..., Any]) -> str:
    return f"middleware {getattr(hook, '__qualname__', repr(hook))}"
