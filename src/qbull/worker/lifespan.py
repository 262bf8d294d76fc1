"""Lifespans: objects that a process makes before its first job and closes after its last one.

Pools, HTTP clients and models belong here. `@app.lifespan` declares one, and its `value` is the object inside
tasks.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from contextvars import Context
from typing import Any, Generic, TypeVar, overload
from weakref import WeakKeyDictionary

from qbull.core.outcome import describe
from qbull.errors import DeclarationError, LifespanError

log = logging.getLogger("qbull.worker")
T = TypeVar("T")

LifespanFunction = Callable[
    [], AsyncIterator[T] | Iterator[T] | AbstractAsyncContextManager[T] | AbstractContextManager[T]
]
RunSync = Callable[[Coroutine[Any, Any, None]], None]


class Lifespan(Generic[T]):
    """An object that each process makes before its first job and closes after its last one.

    `@app.lifespan` makes it from a function with one `yield`.

    Args:
        function: the function.
        cpu: True if it runs only in the processes of `cpu=True` tasks, False if only in worker processes.
        run_sync: runs a coroutine from synchronous code.
    """

    def __init__(self, function: Callable[[], Any], cpu: bool | None, run_sync: RunSync) -> None:
        self.name = _checked_name(function)
        self.cpu = cpu
        """Whether it belongs to the processes of `cpu=True` tasks only, to the others only, or to all."""
        self.run_sync = run_sync
        self._function = function
        self._values: dict[asyncio.AbstractEventLoop | None, T] = {}
        """By event loop; None for a process without one."""
        self._overrides: list[T] = []

    def __repr__(self) -> str:
        return f"<Lifespan {self.name}>"

    @property
    def value(self) -> T:
        """The object that the function yields, in a process that runs jobs."""
        if self._overrides:
            return self._overrides[-1]
        values = self._values
        if not values:
            raise LifespanError(
                f'lifespan "{self.name}" has not started in this process. '
                f"Use its value inside a task; in a test, set one with {self.name}.override(…)."
            )
        loop = asyncio._get_running_loop()
        # Threads have no event loop. They use the newest value, which is nearly always the only one.
        return values[loop] if loop in values else values[next(reversed(values))]

    @contextmanager
    def override(self, value: T) -> Iterator[T]:
        """Use another value within the block, for tests. The function does not run there.

        Args:
            value: the object that tasks get.
        """
        self._overrides.append(value)
        try:
            yield value
        finally:
            self._overrides.pop()

    @property
    def started(self) -> bool:
        """Whether it has a value."""
        return bool(self._values or self._overrides)

    @property
    def address(self) -> tuple[str, str]:
        """The module and the name by which a process of the CPU pool imports it."""
        return self._function.__module__, self._function.__qualname__

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start it on the running event loop, and stop it after the block."""
        if self._overrides:
            yield
            return
        loop = asyncio.get_running_loop()
        try:
            made = self._make()
            context = made if isinstance(made, AbstractAsyncContextManager) else _in_thread(made)
            self._values[loop] = await context.__aenter__()
        except (Exception, SystemExit) as error:
            raise self._failed(error) from error
        try:
            yield
        finally:
            self._values.pop(loop, None)
            try:
                await context.__aexit__(None, None, None)
            except Exception:
                self._log_failed_stop()

    @contextmanager
    def running_here(self) -> Iterator[None]:
        """The same in a process of the CPU pool, where plain functions run in the main thread."""
        if not inspect.isgeneratorfunction(inspect.unwrap(self._function)):
            task = LifespanTask([self])
            self.run_sync(task.start())
            try:
                yield
            finally:
                self.run_sync(task.stop())
            return
        try:
            made: Any = self._make()
            self._values[None] = made.__enter__()
        except (Exception, SystemExit) as error:
            raise self._failed(error) from error
        try:
            yield
        finally:
            self._values.clear()
            try:
                made.__exit__(None, None, None)
            except Exception:
                self._log_failed_stop()

    def _make(self) -> AbstractAsyncContextManager[T] | AbstractContextManager[T]:
        function = self._function
        if inspect.isasyncgenfunction(function):
            return asynccontextmanager(function)()
        made = contextmanager(function)() if inspect.isgeneratorfunction(function) else function()
        if isinstance(made, AbstractAsyncContextManager | AbstractContextManager):
            return made
        raise TypeError(f"it returned {made!r}, which is no context manager; use yield instead of return")

    def _failed(self, error: BaseException) -> LifespanError:
        return LifespanError(
            f'lifespan "{self.name}" failed to start: {describe(error)}{self._location(error)}'
        )

    def _location(self, error: BaseException) -> str:
        """The line of the function that led to the error."""
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
        return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""

    def _log_failed_stop(self) -> None:
        log.exception('lifespan "%s" failed to stop', self.name)


class LifespanTask:
    """Lifespans that one asyncio task starts and stops: libraries with task groups demand that."""

    def __init__(self, lifespans: Sequence[Lifespan[Any]]) -> None:
        self._lifespans = lifespans

    async def start(self) -> None:
        """Start them in order. If one fails, stop those before it and raise LifespanError."""
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run(), context=Context())
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise

    async def stop(self) -> None:
        """Stop them in the reverse order."""
        self._stopping.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                for lifespan in self._lifespans:
                    await stack.enter_async_context(lifespan.running())
                self._started.set_result(None)
                await self._stopping.wait()
        except LifespanError as error:
            self._started.set_exception(error)


class SharedLifespans:
    """The lifespans of an app on one event loop. The first worker starts them, the last one stops them."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._workers = 0

    async def start(self, lifespans: Sequence[Lifespan[Any]]) -> None:
        async with self._lock:
            if not self._workers:
                self._task = LifespanTask(lifespans)
                await self._task.start()
            self._workers += 1

    async def stop(self) -> None:
        async with self._lock:
            self._workers -= 1
            if not self._workers:
                await self._task.stop()


class Lifespans:
    """The lifespans of an app, in the order of their declaration. `@app.lifespan` adds one."""

    def __init__(self, run_sync: RunSync) -> None:
        self._run_sync = run_sync
        self._declared: dict[tuple[str, str], Lifespan[Any]] = {}
        self._shared: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedLifespans] = WeakKeyDictionary()

    def __bool__(self) -> bool:
        return bool(self._declared)

    @overload
    def __call__(self, function: LifespanFunction[T], /) -> Lifespan[T]: ...
    @overload
    def __call__(self, /, *, cpu: bool | None = None) -> Callable[[LifespanFunction[T]], Lifespan[T]]: ...
    def __call__(self, function: Any = None, /, *, cpu: bool | None = None) -> Any:
        """Declare a lifespan: `@app.lifespan`, or `@app.lifespan(cpu=True)`.

        Args:
            function: a function with one `yield`, or one that returns a context manager.
            cpu: True runs it only in the processes of `cpu=True` tasks, False only in worker processes; None
                runs it in both.
        """

        def declare(function: Callable[[], Any]) -> Lifespan[Any]:
            lifespan: Lifespan[Any] = Lifespan(function, cpu, self._run_sync)
            self._declared[lifespan.address] = lifespan
            return lifespan

        return declare if function is None else declare(function)

    def of_cpu_process(self) -> list[tuple[str, str]]:
        """The addresses of those that run in a process of the CPU pool."""
        return [lifespan.address for lifespan in self._declared.values() if lifespan.cpu is not False]

    async def start(self, *, cpu: bool = False) -> None:
        """Start those of a worker on the running event loop, unless another worker has done so.

        Args:
            cpu: start those of `cpu=True` tasks too.
        """
        loop = asyncio.get_running_loop()
        lifespans = [each for each in self._declared.values() if cpu or each.cpu is not True]
        await self._shared.setdefault(loop, SharedLifespans()).start(lifespans)

    @contextmanager
    def running_sync(self) -> Iterator[None]:
        """All of them from synchronous code, for tests. Those that have started are used."""
        if all(lifespan.started for lifespan in self._declared.values()):
            yield
            return
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self.start(cpu=True))
            try:
                yield
            finally:
                loop.run_until_complete(self.stop())
        finally:
            loop.close()

    async def stop(self) -> None:
        """Stop them if no other worker on the running event loop needs them."""
        await self._shared[asyncio.get_running_loop()].stop()


def _checked_name(function: Callable[[], Any]) -> str:
    name = str(getattr(function, "__name__", function))
    if inspect.iscoroutinefunction(function):
        raise DeclarationError(f'lifespan "{name}" has no yield. Write "yield" where jobs may run.')
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return name
    for parameter in parameters:
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not is_variadic:
            raise DeclarationError(
                f'lifespan "{name}" needs the argument "{parameter.name}". Lifespans are called without any.'
            )
    return name


@asynccontextmanager
async def _in_thread(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """A plain context manager that may block."""
    value = await asyncio.to_thread(context.__enter__)
    try:
        yield value
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
