"""Durable runs: the calls of a durable task in one run of its job: steps, sleeps, signals, checkpoints."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NoReturn

import msgspec

from qbull.core.calls import (
    CALL_PREFIX,
    CalledJob,
    HistoryChange,
    StartedCall,
    decode_called,
    decode_outcome,
    encode_called,
    failure_of,
)
from qbull.core.codec import decode_result
from qbull.core.durable import (
    CHECKPOINT_PREFIX,
    MAX_HISTORY_BYTES,
    PATCH_PREFIX,
    SLEEP_NAME,
    StepKey,
    StepRecord,
    digest_arguments,
    encode_error,
    encode_record,
)
from qbull.core.flow import Dependency, encode
from qbull.core.outcome import ContinuedAs, Undeliverable
from qbull.core.published import PUBLISH_PREFIX, PublishedValue, encode_published_value
from qbull.core.signals import WAIT_PREFIX, WAITING_DUE_MS, SignalWait
from qbull.core.streams import MAX_REMEMBERED_VALUES, UNNAMED_VALUE, EmittedKey
from qbull.errors import (
    ArgumentsError,
    PayloadError,
    QbullError,
    RetryAfter,
    SignalMismatch,
    TooLarge,
)
from qbull.worker.call_inbox import CALL_POLL_SECONDS
from qbull.worker.current import entry_ms
from qbull.worker.recorded_run import RecordedRun, inside_step
from qbull.worker.signals import SIGNAL_POLL_SECONDS
from qbull.worker.step_calls import StepCall, StepTry, WakeTime
from qbull.worker.step_function import (
    StepFunction,
    current_task,
    function_of,
    function_to_call,
    refuse_timeout,
    stand_ins,
    tries_again,
    try_step,
)
from qbull.worker.suspension import Sleep
from qbull.worker.task_calls import TaskCall
from qbull.worker.transactions import in_transaction

REPLACEMENT_KEY = StepKey(f"{CALL_PREFIX}replacement", b"", 0)
"""The record of the jobs that do the work of a job in its place."""


class DurableRun(RecordedRun):
    """The calls of one run. It is the `StepRunner` of its job."""

    async def step(self, call: StepCall) -> Any:
        """Run a step, or return its recorded result."""
        function = function_of(call)
        if not function.is_async:
            refuse_timeout(call, function)
        name, asker = call.options.name or function.name, asyncio.current_task()
        key, record = self._ask(name, digest_arguments(call.args, call.kwargs), asker)
        if not self._may_run(record):
            await self._wait_for_turn(name, record)
        try:
            if record is not None:
                return self._outcome(record, function, asker)
            tried, call = StepTry(time.time()), self._marked(call, key)
            inside = inside_step.set(True)
            try:
                with self._services.span(name):
                    value = await self._try(call, function, tried)
            except RetryAfter:
                raise
            except Exception as error:
                await self._failed(key, error, tried, asker)
            finally:
                inside_step.reset(inside)
            encoded, value = self._round_trip(key, function, value)
            await self._record(key, "r", encoded, tried)
            return value
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
            tried, call = StepTry(time.time()), self._marked(call, key)
            inside = inside_step.set(True)
            try:
                with self._services.span(name):
                    value = _try_plain(call, tried)
            except RetryAfter:
                raise
            except Exception as error:
                wait_for(self._failed(key, error, tried, None))
            finally:
                inside_step.reset(inside)
            encoded, value = self._round_trip(key, function, value)
            wait_for(self._record(key, "r", encoded, tried))
            return value
        finally:
            self._services.on_loop(self._returned)

    async def sleep(self, wake: WakeTime) -> None:
        """Leave the worker until a time has come."""
        key, record = await self._begin(SLEEP_NAME, digest_arguments(wake.arguments, {}), current_task())
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
        asker = current_task()
        key, record = await self._begin(WAIT_PREFIX + wait.name, b"", asker)
        try:
            if record is not None:
                return self._outcome(record, wait, asker)
            begun = self._history.started(key)
            tried = StepTry(begun.started_ms / 1000 if begun is not None else time.time(), 1)
            while (content := await self._signals.take(wait.name, tried)) is None:
                if begun is None:
                    due_ms = wait.due_ms(self._signals.now_ms)
                    tried.schema = wait.schema(self._services.hooks)
                    begun = await self._put(key, "w", b"%d" % due_ms, tried)
                    tried.schema = b""
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

    async def call(self, call: TaskCall) -> Any:
        """Let another job run a task, and leave the worker until it has ended."""
        asker = current_task()
        key, record = await self._begin(call.name, call.digest, asker)
        try:
            if record is not None:
                return self._outcome(record, call, asker)
            begun = self._history.started(key) or await self._start_call(key, call)
            tried, letter, told = await self._joined(begun, hold_lane=call.hold_lane)
            failure = failure_of(letter, told)
            if failure is not None:
                await self._failed(key, failure, tried, asker)
            content = told.result or b"null"
            await self._record(key, "r", content, tried)
            return call.decode(content, self._services.hooks)
        finally:
            self._returned()

    def call_sync(self, call: TaskCall) -> Any:
        return self._services.wait_for(self.call(call))

    @property
    def is_replaced(self) -> bool:
        """Whether an earlier run has left the work to other jobs, which have not failed."""
        return self._history.started(REPLACEMENT_KEY) is not None

    async def replace(self, call: TaskCall | None = None) -> Dependency:
        """Let other jobs do the work of this one, and leave the worker until they have ended.

        Returns their outcome. The first call that was recorded counts, also in a run that gives none. If they
        fail, the next attempt is not replaced any more.
        """
        self._refuse_closed(REPLACEMENT_KEY.name)
        begun = self._history.started(REPLACEMENT_KEY)
        if begun is None:
            if call is None:
                raise QbullError(f'task "{self._job.body.task}": no other job does its work')
            begun = await self._start_call(REPLACEMENT_KEY, call)
        self._history.unplayed.clear()  # the task itself does not run again
        tried, letter, told = await self._joined(begun, hold_lane=True)
        failure = failure_of(letter, told)
        if failure is None:
            return told
        await self._put(REPLACEMENT_KEY, "a", encode_error(REPLACEMENT_KEY.name, failure)[0], tried)
        raise failure

    def replace_sync(self, call: TaskCall | None = None) -> Dependency:
        return self._services.wait_for(self.replace(call))

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

    async def patched(self, change: str) -> bool:
        """Whether the run has reached this point with the changed code only."""
        name = PATCH_PREFIX + change
        self._refuse_closed(name)
        if self._history.is_before_patch(name):
            return False
        key, record = await self._begin(name, b"", current_task())
        try:
            if record is None:
                await self._record(key, "r", b"true", StepTry(time.time(), 1))
        finally:
            self._returned()
        return True

    def patched_sync(self, change: str) -> bool:
        return self._services.wait_for(self.patched(change))

    async def publish(self, name: str, value: Any) -> None:
        """Show a value under a name. A replay leaves the value as it is."""
        encoded = encode_published_value(name, value, self._services.hooks)
        key, record = await self._begin(PUBLISH_PREFIX + name, b"", current_task())
        try:
            if record is None:
                shown = PublishedValue(name, self._services.protect_published(name, encoded))
                if (bound := self._history.published.bound_of(shown)) is not None:
                    self._fatal = TooLarge(
                        f'publish("{name}"): a job has at most {bound} of published values'
                    )
                    raise self._fatal
                await self._record(key, "r", b"null", StepTry(time.time(), 1, published=shown))
                self._history.published.put(shown)
        finally:
            self._returned()

    def publish_sync(self, name: str, value: Any) -> None:
        self._services.wait_for(self.publish(name, value))

    def continue_as(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """End the run: the job starts over with these arguments."""
        self._refuse_closed("continue_as")
        self._replay.check_complete()
        self.continued = ContinuedAs(self._services.encode_arguments(args, kwargs))
        raise self.continued

    def emission(self, content: bytes) -> EmittedKey | None:
        """The key of a value that the task emits; None if the stream has it from an earlier run."""
        if inside_step.get():
            return UNNAMED_VALUE
        self._refuse_closed("emit")
        emitted = self._history.emitted
        key = emitted.next(self._history.position, content)
        if emitted.is_full:
            raise self._exceeded(f"{MAX_REMEMBERED_VALUES:,} emitted values outside of steps")
        return key

    async def _try(self, call: StepCall, function: StepFunction, tried: StepTry) -> Any:
        """Call the function of a step until it returns, or may not be tried again."""
        while True:
            tried.count += 1
            try:
                return await try_step(call, function, self._services.run_plain)
            except Exception as error:
                if not tries_again(error, call, tried.count):
                    raise
            await asyncio.sleep(call.options.retry.wait_before(tried.count + 1))

    def _marked(self, call: StepCall, key: StepKey) -> StepCall:
        """The call of a step; that of a transaction with the mark that the step leaves in the database.

        A job that has started over, or passed a checkpoint again, may ask for a step with the same key.
        """
        if call.pool is None or (stand_ins and function_to_call(call) is not call.function):
            return call
        position = f"{self._job.body.continued}:{self._history.position}"
        return in_transaction(call, f"{position}:{key.name}:{key.arguments.hex()}:{key.occurrence}")

    async def _start_call(self, key: StepKey, call: TaskCall) -> StepRecord:
        """Enqueue the job of a call. Its message and the record that the call has started are one write."""
        plan = await self._services.plan_call(call)
        seed = call.called_in(plan)
        called = CalledJob(plan.flow, seed.queue, seed.id, call.step.task)
        told = Dependency(seed.queue, seed.id, called.task, together=seed.together)
        started = StartedCall(plan.flow, encode(told), encode(plan))
        return await self._put(key, "l", encode_called(called), StepTry(time.time(), 1, call=started))

    async def _joined(self, begun: StepRecord, *, hold_lane: bool) -> tuple[StepTry, str, Dependency]:
        """Leave the worker until the job of a call has ended. Returns its outcome."""
        called = decode_called(self._content(begun))
        while (stored := self._calls.outcome(called.name)) is None:
            sleep = Sleep(WAITING_DUE_MS, hold_lane, seen=self._calls.last)
            await self._suspension.sleep(sleep, CALL_POLL_SECONDS)
            await self._calls.look(called.name)
        letter, told = await self._called_outcome(called, stored)
        return StepTry(begun.started_ms / 1000, 1, joined=called.name), letter, told

    async def _called_outcome(self, called: CalledJob, stored: bytes) -> tuple[str, Dependency]:
        """The outcome of a call. It counts only if it is that of the job that was called."""
        try:
            letter, told = decode_outcome(stored)
        except ValueError as error:
            raise Undeliverable(str(error)) from None
        if (told.queue, told.id, told.task) != (called.queue, called.id, called.task):
            raise Undeliverable(
                f"the outcome of job {called.id} is that of another job: somebody has changed it"
            )
        return letter, await self._services.open_outcome(letter, told)

    def _round_trip(self, key: StepKey, function: StepFunction, value: Any) -> tuple[bytes, Any]:
        """The result of a step as it is recorded, and as the task gets it."""
        try:
            return function.round_trip(value, MAX_HISTORY_BYTES, self._services.hooks)
        except PayloadError as error:
            self._fatal = PayloadError(f'step "{key.name}": {error}')
            raise self._fatal from None

    async def _move_checkpoint(self, name: str, number: int, value: Any) -> Any:
        self._refuse_closed(name)
        if self._replay.outstanding:
            raise QbullError(f"{name}: other steps of the job run at the same time; await them first")
        await self._replay.turn(name, None)
        encoded = self._encode_value(name, value)
        before = self._history.records[number]
        record = msgspec.structs.replace(before, content=encoded, attempts=before.attempts + 1)
        record = msgspec.structs.replace(record, content=self._services.protect(record))
        stored = encode_record(record)
        if not await self._write(HistoryChange([(number, stored)], number + 1, self._history.last)):
            raise self._taken_over()
        self._history.rewind(name)
        self._history.put(record, len(stored))
        self._history.emitted.rewind(self._history.position)
        return decode_result(encoded, type(value), self._services.hooks)


def _try_plain(call: StepCall, tried: StepTry) -> Any:
    """Call the function of a step in the thread of its task."""
    while True:
        tried.count += 1
        try:
            return function_to_call(call)(*call.args, **call.kwargs)
        except Exception as error:
            if not tries_again(error, call, tried.count):
                raise
        time.sleep(call.options.retry.wait_before(tried.count + 1))
