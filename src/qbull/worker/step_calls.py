"""Step calls: the methods with which a durable task records its steps."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar, overload

import msgspec

from qbull.core.calls import StartedCall
from qbull.core.flow import Dependency
from qbull.core.outcome import ContinuedAs, Suspended
from qbull.core.published import PublishedValue
from qbull.core.retry import Retry
from qbull.core.signals import SignalWait, check_signal_name
from qbull.core.streams import EmittedKey
from qbull.errors import MAX_DELAY_SECONDS, ArgumentsError, DeclarationError, QbullError

if TYPE_CHECKING:
    from qbull.worker.task_calls import TaskCall

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_STEP_NAME_CHARS = 200


ONE_TRY = Retry(attempts=1)


class StepOptions(msgspec.Struct, frozen=True):
    """The options of a step."""

    name: str | None = None
    retry: Retry = ONE_TRY
    timeout: float | None = None


DEFAULT_STEP_OPTIONS = StepOptions()


class StepRunner(Protocol):
    """Runs and records the steps of one run of a job: `DurableRun`."""

    @property
    def suspended(self) -> Suspended | None: ...
    @property
    def continued(self) -> ContinuedAs | None: ...
    def continue_as(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn: ...
    async def step(self, call: StepCall) -> Any: ...
    def step_sync(self, call: StepCall) -> Any: ...
    async def checkpoint(self, name: str, value: Any) -> Any: ...
    def checkpoint_sync(self, name: str, value: Any) -> Any: ...
    async def sleep(self, wake: WakeTime) -> None: ...
    def sleep_sync(self, wake: WakeTime) -> None: ...
    async def wait_for(self, wait: SignalWait) -> Any: ...
    def wait_for_sync(self, wait: SignalWait) -> Any: ...
    async def call(self, call: TaskCall) -> Any: ...
    def call_sync(self, call: TaskCall) -> Any: ...
    @property
    def is_replaced(self) -> bool: ...
    async def replace(self, call: TaskCall | None = None) -> Dependency: ...
    def replace_sync(self, call: TaskCall | None = None) -> Dependency: ...
    async def patched(self, change: str) -> bool: ...
    def patched_sync(self, change: str) -> bool: ...
    async def publish(self, name: str, value: Any) -> None: ...
    def publish_sync(self, name: str, value: Any) -> None: ...
    def emission(self, content: bytes) -> EmittedKey | None: ...
    def ended(self) -> None: ...
    async def failed(self, error: Exception) -> Exception: ...
    def close(self) -> None: ...


class StepTry(msgspec.Struct):
    """A step that runs: when it started, and how often it was tried.

    If it waits for a signal: the one that it has taken, or 0, and the newest one that it has seen. If it is a
    call: the one that starts, or the name of the one that has ended. `published`: the value that it shows.
    """

    started: float
    count: int = 0
    signal: int = 0
    seen: int = 0
    call: StartedCall | None = None
    joined: str = ""
    published: PublishedValue | None = None
    schema: bytes = b""
    """The JSON Schema of the signal that it starts to wait for."""

    def times_ms(self) -> tuple[int, float]:
        """When it started, and for how long it has run."""
        return int(self.started * 1000), round((time.time() - self.started) * 1000, 3)


class StepCall(msgspec.Struct, frozen=True):
    """One call of a step. With a `pool`, the function runs in a transaction of PostgreSQL, once."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: StepOptions
    pool: Any = None


class WakeTime(msgspec.Struct, frozen=True):
    """When a sleep ends: after some seconds, or at a time. `hold_lane`: jobs of the same key wait with it."""

    seconds: float
    until: datetime | None
    hold_lane: bool

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Recognises the sleep in a replay."""
        return (self.seconds, self.until)

    def due_ms(self, now_ms: int) -> int:
        """Its end in milliseconds, on the server's clock."""
        if self.until is None:
            return now_ms + math.ceil(self.seconds * 1000)
        return math.ceil(self.until.timestamp() * 1000)


class StepCalls:
    """The calls that record steps. The current job has them, and so has `job.options(…)`."""

    __slots__ = ()

    @property
    def _step_options(self) -> StepOptions:
        return DEFAULT_STEP_OPTIONS

    @property
    def _steps(self) -> StepRunner:
        raise NotImplementedError

    @overload
    async def step(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function and record its result. When the job runs again, the recorded result is returned.

        A plain function runs in a thread. If the function raises, its exception is recorded and raised here.

        Args:
            function: the function.
            args: its arguments.
            kwargs: its arguments, by name.
        """
        return await self._steps.step(StepCall(function, args, kwargs, self._step_options))

    def step_sync(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """`step` for plain tasks: the function runs in the thread of the task.

        Args:
            function: a plain function.
            args: its arguments.
            kwargs: its arguments, by name.
        """
        refuse_loop("step")
        result: R = self._steps.step_sync(StepCall(function, args, kwargs, self._step_options))
        return result


class StepsWithOptions(StepCalls):
    """Steps with options, as `job.options(…)` returns them."""

    __slots__ = ("_chosen", "_runner")

    def __init__(self, runner: StepRunner, options: StepOptions) -> None:
        self._runner = runner
        self._chosen = options

    @property
    def _step_options(self) -> StepOptions:
        return self._chosen

    @property
    def _steps(self) -> StepRunner:
        return self._runner


class DurableCalls(StepCalls):
    """The calls of a durable task that `current_job()` has."""

    __slots__ = ()

    def options(
        self, *, name: str | None = None, retry: Retry | None = None, timeout: float | None = None
    ) -> StepsWithOptions:
        """Steps with options: `await job.options(timeout=10).step(charge, order)`.

        Args:
            name: the name of the step, instead of the name of the function.
            retry: how often the function is tried before the step has failed; once by default.
            timeout: seconds that one try may take; only for coroutine functions.
        """
        if name is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_STEP_NAME_CHARS):
            raise ArgumentsError(f"name={name!r}: give a text of 1 to {MAX_STEP_NAME_CHARS} characters")
        if timeout is not None and not 0 < timeout <= MAX_DELAY_SECONDS:
            raise ArgumentsError(f"timeout={timeout}: must be more than 0 seconds, or None")
        return StepsWithOptions(self._steps, StepOptions(name, retry or ONE_TRY, timeout))

    async def sleep(
        self,
        seconds: float = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        until: datetime | None = None,
        hold_lane: bool = True,
    ) -> None:
        """Sleep without a worker: the job leaves its slot, and runs again when its time has come.

        Args:
            seconds: how long to sleep; minutes and hours are added.
            minutes: how long to sleep.
            hours: how long to sleep.
            until: the time to sleep until, with a time zone, instead of a duration.
            hold_lane: in an ordered lane, the jobs behind it wait. If False, they pass, and the job joins the
                end of its lane when it wakes up.
        """
        await self._steps.sleep(_wake_time(seconds, minutes, hours, until, hold_lane))

    def sleep_sync(
        self,
        seconds: float = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        until: datetime | None = None,
        hold_lane: bool = True,
    ) -> None:
        """`sleep` for plain tasks.

        Args:
            seconds: how long to sleep; minutes and hours are added.
            minutes: how long to sleep.
            hours: how long to sleep.
            until: the time to sleep until, with a time zone, instead of a duration.
            hold_lane: in an ordered lane, the jobs behind it wait.
        """
        refuse_loop("sleep")
        self._steps.sleep_sync(_wake_time(seconds, minutes, hours, until, hold_lane))

    @overload
    async def wait_for(
        self, name: str, *, type: type[T], timeout: float | None = None, hold_lane: bool = True
    ) -> T: ...
    @overload
    async def wait_for(
        self, name: str, *, type: Any = Any, timeout: float | None = None, hold_lane: bool = True
    ) -> Any: ...
    async def wait_for(
        self,
        name: str,
        *,
        type: Any = Any,  # noqa: A002 - the public name
        timeout: float | None = None,
        hold_lane: bool = True,
    ) -> Any:
        """Wait for a signal without a worker, and return its value. `handle.signal(name, value)` sends it.

        A signal that came before is there at once. Several with the same name come in the order of sending.

        Args:
            name: the name of the signal.
            type: the type of its value; SignalMismatch is raised if it does not fit.
            timeout: seconds after which SignalTimeout is raised; None to wait for ever.
            hold_lane: in an ordered lane, the jobs behind it wait. If False, they pass, and the job joins the
                end of its lane when the signal comes.
        """
        return await self._steps.wait_for(_signal_wait(name, type, timeout, hold_lane))

    @overload
    def wait_for_sync(
        self, name: str, *, type: type[T], timeout: float | None = None, hold_lane: bool = True
    ) -> T: ...
    @overload
    def wait_for_sync(
        self, name: str, *, type: Any = Any, timeout: float | None = None, hold_lane: bool = True
    ) -> Any: ...
    def wait_for_sync(
        self,
        name: str,
        *,
        type: Any = Any,  # noqa: A002 - the public name
        timeout: float | None = None,
        hold_lane: bool = True,
    ) -> Any:
        """`wait_for` for plain tasks.

        Args:
            name: the name of the signal.
            type: the type of its value.
            timeout: seconds after which SignalTimeout is raised; None to wait for ever.
            hold_lane: in an ordered lane, the jobs behind it wait.
        """
        refuse_loop("wait_for")
        return self._steps.wait_for_sync(_signal_wait(name, type, timeout, hold_lane))

    async def checkpoint(self, value: T, *, name: str = "") -> T:
        """Keep a value for the next run, for example the position in a loop.

        The first call in a run returns the last value that the job has kept, or `value` if there is none. All
        further calls keep `value` and return it. They also delete the records of the steps since the first
        call, so that a loop may have any number of steps.

        Args:
            value: the value.
            name: which value, if a task keeps several.
        """
        kept: T = await self._steps.checkpoint(name, value)
        return kept

    def checkpoint_sync(self, value: T, *, name: str = "") -> T:
        """`checkpoint` for plain tasks.

        Args:
            value: the value.
            name: which value, if a task keeps several.
        """
        refuse_loop("checkpoint")
        kept: T = self._steps.checkpoint_sync(name, value)
        return kept

    async def patched(self, change: str) -> bool:
        """Whether to take the new path of changed code. False for jobs that were past this point before.

        Args:
            change: a name for the change, such as "v2".
        """
        return await self._steps.patched(_change_name(change))

    def patched_sync(self, change: str) -> bool:
        """`patched` for plain tasks.

        Args:
            change: a name for the change, such as "v2".
        """
        refuse_loop("patched")
        return self._steps.patched_sync(_change_name(change))


def _change_name(change: str) -> str:
    if not isinstance(change, str) or not 0 < len(change) <= MAX_STEP_NAME_CHARS:
        raise ArgumentsError(f"patched({change!r}): give a name of 1 to {MAX_STEP_NAME_CHARS} characters")
    return change


def _wake_time(
    seconds: float, minutes: float, hours: float, until: datetime | None, hold_lane: bool
) -> WakeTime:
    total = seconds + 60 * minutes + 3600 * hours
    if not 0 <= total <= MAX_DELAY_SECONDS:
        raise ArgumentsError(f"sleep: {total:g} seconds: give 0 to {MAX_DELAY_SECONDS:,}")
    if until is None:
        return WakeTime(total, None, hold_lane)
    if total:
        raise ArgumentsError("sleep: give until, or seconds, minutes and hours")
    if until.tzinfo is None:
        raise ArgumentsError(f"sleep(until={until}): it has no time zone; give one, such as timezone.utc")
    return WakeTime(0.0, until, hold_lane)


def _signal_wait(name: str, kind: Any, timeout: float | None, hold_lane: bool) -> SignalWait:
    check_signal_name(name)
    if timeout is not None and not 0 <= timeout <= MAX_DELAY_SECONDS:
        raise ArgumentsError(f"wait_for(timeout={timeout}): give 0 to {MAX_DELAY_SECONDS:,} seconds, or None")
    return SignalWait(name, kind, timeout, hold_lane)


def runner_of(task: str, runner: StepRunner | None) -> StepRunner:
    """The runner of a durable job. Raises DeclarationError for any other job."""
    if runner is None:
        raise DeclarationError(
            f'task "{task}": it records no steps, because it is not durable; declare it with durable=True'
        )
    return runner


def refuse_loop(name: str) -> None:
    """Refuse the synchronous form of a call in an event loop."""
    if asyncio._get_running_loop() is not None:
        raise QbullError(f"{name}_sync() would block the running event loop; await {name}() instead")
