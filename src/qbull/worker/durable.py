"""Durable runs: the steps of one run of a durable job.

A step that has a record returns it. Any other step runs, and its outcome is on the server before the task
goes on. The write is fenced: a worker that has lost its delivery records nothing, and the task gets a
TakenOver.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

import msgspec

from qbull.core.codec import decode_result, encode_result
from qbull.core.durable import (
    CHECKPOINT_PREFIX,
    MAX_HISTORY_BYTES,
    MAX_STEPS,
    SLEEP_NAME,
    History,
    StepEnd,
    StepKey,
    StepRecord,
    decode_error,
    digest_arguments,
    encode_error,
    encode_record,
    make_error,
)
from qbull.core.outcome import Suspended, Undeliverable, describe
from qbull.core.signals import WAIT_PREFIX, SignalWait
from qbull.errors import (
    ArgumentsError,
    Fail,
    PayloadError,
    QbullError,
    RetryAfter,
    SignalMismatch,
    TakenOver,
    TooLarge,
)
from qbull.worker.current import RunningJob, entry_ms
from qbull.worker.durable_services import DurableServices
from qbull.worker.replay import Replay
from qbull.worker.signals import SIGNAL_POLL_SECONDS, SignalInbox
from qbull.worker.step_calls import StepCall, StepTry, WakeTime
from qbull.worker.step_function import StepFunction, function_of, refuse_timeout, tries_again, try_step
from qbull.worker.suspension import Sleep, Suspension

A = TypeVar("A")

_inside_step: ContextVar[bool] = ContextVar("qbull_inside_step", default=False)


class DurableRun:
    """The steps of one run. It is the `StepRunner` of its job.

    Args:
        job: the job.
        history: its records.
        services: the surroundings.
    """

    def __init__(self, job: RunningJob, history: History, services: DurableServices) -> None:
        self._job = job
        self._history = history
        self._services = services
        self._replay = Replay(job.body.task, history)
        self._suspension = Suspension(self._replay, services.suspend)
        self._signals = SignalInbox(services)
        self._fatal: PayloadError | None = None
        self._is_over = False
        self._main = _current_task()
        self._asks = 0
        # For each asyncio task that has asked for steps, the number of its last ask.
        self._last_ask: dict[object, int] = {}
        # The errors that the task got: the exception, its record, who got it, and after how many asks.
        self._raised: list[tuple[Exception, StepRecord, object, int]] = []

    async def step(self, call: StepCall) -> Any:
        """Run a step, or return its recorded result."""
        function = function_of(call)
        if not function.is_async:
            refuse_timeout(call, function)
        name, asker = call.options.name or function.name, asyncio.current_task()
        key, record = await self._begin(name, digest_arguments(call.args, call.kwargs), asker)
        try:
            if record is not None:
                return self._outcome(record, function, asker)
            tried = StepTry(time.time())
            inside = _inside_step.set(True)
            try:
                while True:
                    tried.count += 1
                    try:
                        value = await try_step(call, function, self._services.run_plain)
                        break
                    except Exception as error:
                        if not tries_again(error, call, tried.count):
                            raise
                    await asyncio.sleep(call.options.retry.wait_before(tried.count + 1))
            except RetryAfter:
                raise
            except Exception as error:
                await self._failed(key, error, tried, asker)
            finally:
                _inside_step.reset(inside)
            return await self._completed(key, function, value, tried)
        finally:
            self._returned()

    def step_sync(self, call: StepCall) -> Any:
        """Run a step of a plain task in the thread of the task."""
        function = function_of(call)
        if function.is_async:
            raise ArgumentsError(
                f"step_sync({function.name}): it is a coroutine function; make the task async and use step()"
            )
        refuse_timeout(call, function)
        name = call.options.name or function.name
        wait_for = self._services.wait_for
        key, record = wait_for(self._begin(name, digest_arguments(call.args, call.kwargs), None))
        try:
            if record is not None:
                return self._outcome(record, function, None)
            tried = StepTry(time.time())
            inside = _inside_step.set(True)
            try:
                while True:
                    tried.count += 1
                    try:
                        value = call.function(*call.args, **call.kwargs)
                        break
                    except Exception as error:
                        if not tries_again(error, call, tried.count):
                            raise
                    time.sleep(call.options.retry.wait_before(tried.count + 1))
            except RetryAfter:
                raise
            except Exception as error:
                wait_for(self._failed(key, error, tried, None))
            finally:
                _inside_step.reset(inside)
            return wait_for(self._completed(key, function, value, tried))
        finally:
            self._services.on_loop(self._returned)

    async def sleep(self, wake: WakeTime) -> None:
        """Leave the worker until a time has come."""
        key, record = await self._begin(SLEEP_NAME, digest_arguments(wake.arguments, {}), _current_task())
        try:
            if record is not None:
                return
            begun = self._history.started(key)
            if begun is None:
                due_ms = wake.due_ms(await self._services.now_ms())
                begun = await self._put(key, "b", b"%d" % due_ms, StepTry(time.time(), 1))
            due_ms = int(self._content(begun))
            # A job that has left its worker for this sleep was woken: by the clock, or by promote().
            if due_ms != self._job.body.woken_ms and due_ms > entry_ms(self._job.position):
                left_ms = due_ms - await self._services.now_ms()
                await self._suspension.sleep(Sleep(due_ms, wake.hold_lane), left_ms / 1000)
            await self._record(key, "r", b"null", StepTry(begun.started_ms / 1000, 1))
        finally:
            self._returned()

    def sleep_sync(self, wake: WakeTime) -> None:
        self._services.wait_for(self.sleep(wake))

    async def wait_for(self, wait: SignalWait) -> Any:
        """Take the oldest signal with a name. If there is none, leave the worker until one comes."""
        asker = _current_task()
        key, record = await self._begin(WAIT_PREFIX + wait.name, b"", asker)
        try:
            if record is not None:
                return self._outcome(record, wait, asker)
            begun = self._history.started(key)
            tried = StepTry(begun.started_ms / 1000 if begun is not None else time.time(), 1)
            while (content := await self._signals.take(wait.name, tried)) is None:
                if begun is None:
                    due_ms = wait.due_ms(self._signals.now_ms)
                    begun = await self._put(key, "w", b"%d" % due_ms, tried)
                due_ms = int(self._content(begun))
                left = (due_ms - self._signals.now_ms) / 1000
                if left <= 0:
                    await self._failed(key, wait.too_late(), tried, asker)
                sleep = Sleep(due_ms, wait.hold_lane, wait.name, tried.seen)
                await self._suspension.sleep(sleep, min(left, SIGNAL_POLL_SECONDS))
            try:
                value = wait.decode(content, self._services.hooks)
            except SignalMismatch as error:
                await self._failed(key, error, tried, asker)
            await self._record(key, "r", content, tried)
            return value
        finally:
            self._returned()

    def wait_for_sync(self, wait: SignalWait) -> Any:
        return self._services.wait_for(self.wait_for(wait))

    async def checkpoint(self, name: str, value: Any) -> Any:
        """The last value of a checkpoint, at its first call; then keep the value."""
        name = CHECKPOINT_PREFIX + name
        number = self._history.checkpoint(name)
        if number is not None:
            return await self._move_checkpoint(name, number, value)
        key, record = await self._begin(name, b"", asyncio.current_task())
        try:
            if record is None:
                tried = StepTry(time.time(), 1)
                record = await self._record(key, "c", self._encode_value(name, value), tried)
        finally:
            self._returned()
        self._history.open_checkpoint(name, record.number)
        return decode_result(self._content(record), type(value), self._services.hooks)

    def checkpoint_sync(self, name: str, value: Any) -> Any:
        return self._services.wait_for(self.checkpoint(name, value))

    @property
    def suspended(self) -> Suspended | None:
        """Set when the run has to end because it sleeps or waits."""
        return self._suspension.suspended

    def ended(self) -> None:
        """The task has returned. Raises if it did not ask for all of its history, or has exceeded it."""
        if self.suspended is not None:
            raise self.suspended
        if self._fatal is not None:
            raise self._fatal
        self._replay.check_complete()

    def close(self) -> None:
        """The run is over: nothing is recorded any more."""
        self._is_over = True
        self._replay.close()

    async def failed(self, error: Exception) -> Exception:
        """The task has raised. Returns the error with which the run ends.

        A step whose error the task let through runs again in the next attempt. If the task has caught the
        error and raised it after further steps, no attempt can end otherwise.
        """
        if self._fatal is not None:
            return Undeliverable(str(self._fatal))
        if self._replay.mismatch is not None:
            return self._replay.mismatch
        again = []
        for leaf in _leaves(error):
            for raised, record, asker, asks in self._raised:
                if raised is not leaf:
                    continue
                if max(self._last_ask.get(asker, 0), self._last_ask.get(self._main, 0)) > asks:
                    failure = Fail(describe(error))
                    failure.__cause__ = error
                    return failure
                again.append(msgspec.structs.replace(record, end="a"))
        if again:
            await self._services.write([(one.number, encode_record(one)) for one in again], 1, 0)
        return error

    def _returned(self) -> None:
        """The code has the outcome of a step."""
        self._replay.returned()
        self._suspension.look_soon()

    async def _begin(self, name: str, arguments: bytes, asker: object) -> tuple[StepKey, StepRecord | None]:
        """Ask for a step, and wait until its record may be returned or the step may run.

        `asker` is the asyncio task that asks, None for a plain task.
        """
        self._refuse_closed(name)
        key, record = self._history.ask(name, arguments)
        self._asks += 1
        self._last_ask[asker] = self._asks
        self._replay.asked()
        try:
            await self._replay.turn(name, record)
            if record is None and self._history.last >= MAX_STEPS:
                raise self._exceeded(f"{MAX_STEPS:,} steps")
        except BaseException:
            self._replay.returned()
            raise
        return key, record

    def _refuse_closed(self, name: str) -> None:
        if _inside_step.get():
            raise QbullError(f'step "{name}": a step cannot have steps of its own; call the function instead')
        if self._is_over:
            raise QbullError(f'step "{name}": its job has ended; await all steps before the task returns')
        if self._replay.mismatch is not None:
            raise self._replay.mismatch
        if self._services.is_interrupted():
            raise asyncio.CancelledError
        if self.suspended is not None:
            raise self.suspended

    async def _completed(self, key: StepKey, function: StepFunction, value: Any, tried: StepTry) -> Any:
        try:
            encoded, value = function.round_trip(value, MAX_HISTORY_BYTES, self._services.hooks)
        except PayloadError as error:
            self._fatal = PayloadError(f'step "{key.name}": {error}')
            raise self._fatal from None
        await self._record(key, "r", encoded, tried)
        return value

    async def _failed(self, key: StepKey, error: Exception, tried: StepTry, asker: object) -> NoReturn:
        encoded, shown = encode_error(key.name, error)
        record = await self._record(key, "e", encoded, tried)
        self._raised.append((shown, record, asker, self._asks))
        raise shown

    async def _record(self, key: StepKey, end: StepEnd, content: bytes, tried: StepTry) -> StepRecord:
        """Write a record, and wait until it may be returned."""
        record = await self._put(key, end, content, tried)
        self._history.unplayed.append(record)
        await self._replay.turn(key.name, record)
        return record

    async def _put(self, key: StepKey, end: StepEnd, content: bytes, tried: StepTry) -> StepRecord:
        """Write a record, and take the signal whose value it has."""
        number = self._history.last + 1
        self._history.last = number
        content = self._services.protect(number, content)
        started_ms, duration_ms = tried.times_ms()
        record = StepRecord(number, *key, end, content, started_ms, duration_ms, tried.count)
        encoded = encode_record(record)
        if self._history.size + len(encoded) > MAX_HISTORY_BYTES:
            raise self._exceeded(f"{MAX_HISTORY_BYTES:,} bytes")
        await self._write([(number, encoded)], 1, 0, tried.signal)
        self._history.put(record, len(encoded))
        return record

    async def _move_checkpoint(self, name: str, number: int, value: Any) -> Any:
        self._refuse_closed(name)
        if self._replay.outstanding:
            raise QbullError(f"{name}: other steps of the job run at the same time; await them first")
        await self._replay.turn(name, None)
        encoded = self._encode_value(name, value)
        before = self._history.records[number]
        content = self._services.protect(number, encoded)
        record = msgspec.structs.replace(before, content=content, attempts=before.attempts + 1)
        stored = encode_record(record)
        await self._write([(number, stored)], number + 1, self._history.last)
        self._history.rewind(name)
        self._history.put(record, len(stored))
        return decode_result(encoded, type(value), self._services.hooks)

    async def _write(
        self, records: Sequence[tuple[int, bytes]], first: int, last: int, signal: int = 0
    ) -> None:
        write = self._services.write(records, first, last, signal)
        # A task that no longer waits for a signal must not leave it half taken.
        if not await (asyncio.shield(write) if signal else write):
            raise TakenOver(
                f'queue "{self._job.queue}": job {self._job.id.decode()} was given to another worker; '
                "the steps of this run are no longer recorded"
            )

    def _outcome(self, record: StepRecord, function: StepFunction | SignalWait, asker: object) -> Any:
        """The recorded result. Raises the recorded error."""
        content = self._content(record)
        if record.end != "e":
            return function.decode(content, self._services.hooks)
        error = make_error(record.name, decode_error(content))
        self._raised.append((error, record, asker, self._asks))
        raise error

    def _content(self, record: StepRecord) -> bytes:
        return self._services.open(record.number, record.content)

    def _encode_value(self, name: str, value: Any) -> bytes:
        try:
            return encode_result(value, MAX_HISTORY_BYTES, self._services.hooks)
        except PayloadError as error:
            raise PayloadError(f"{name}: {error}") from None

    def _exceeded(self, bound: str) -> TooLarge:
        self._fatal = error = TooLarge(
            f'task "{self._job.body.task}": the history of a job has at most {bound}; '
            "use checkpoint() in loops, and let steps return references to large data"
        )
        return error


def _current_task() -> object:
    return asyncio.current_task() if asyncio._get_running_loop() is not None else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error
