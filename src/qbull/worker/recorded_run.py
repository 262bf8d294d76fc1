"""Recorded runs: one run of a durable job, its history, and the records that it adds.

A step that has a record returns it. The outcome of any other step is on the server before the task goes on.
The write is fenced: a worker that has lost its delivery records nothing, and the task gets a TakenOver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

import msgspec

from qbull.core.calls import HistoryChange
from qbull.core.codec import encode_result
from qbull.core.durable import (
    MAX_HISTORY_BYTES,
    MAX_STEPS,
    History,
    StepEnd,
    StepKey,
    StepRecord,
    decode_error,
    encode_error,
    encode_record,
    make_error,
)
from qbull.core.outcome import ContinuedAs, Suspended, Undeliverable, describe
from qbull.core.signals import SignalWait
from qbull.errors import (
    Fail,
    PayloadError,
    QbullError,
    TakenOver,
    TooLarge,
)
from qbull.worker.call_inbox import CallInbox
from qbull.worker.current import RunningJob
from qbull.worker.durable_services import DurableServices
from qbull.worker.replay import Replay
from qbull.worker.signals import SignalInbox
from qbull.worker.step_calls import StepTry
from qbull.worker.step_function import (
    StepFunction,
    current_task,
    leaves_of,
)
from qbull.worker.suspension import Suspension
from qbull.worker.task_calls import TaskCall

A = TypeVar("A")

inside_step: ContextVar[bool] = ContextVar("qbullinside_step", default=False)
"""Whether a step of a durable task runs here."""


class RecordedRun:
    """The records of one run of a job. `DurableRun` has the calls of the task.

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
        self._calls = CallInbox(services, history.outcomes)
        self._fatal: PayloadError | None = None
        self.continued: ContinuedAs | None = None
        """Set when the run has to end because the job starts over."""
        self._is_over = False
        self._main = current_task()
        self._asks = 0
        # For each asyncio task that has asked for steps, the number of its last ask.
        self._last_ask: dict[object, int] = {}
        # The errors that the task got: the exception, its record, who got it, and after how many asks.
        self._raised: list[tuple[Exception, StepRecord, object, int]] = []

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
        if self.continued is not None:
            raise self.continued
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
        for leaf in leaves_of(error):
            for raised, record, asker, asks in self._raised:
                if raised is not leaf:
                    continue
                if max(self._last_ask.get(asker, 0), self._last_ask.get(self._main, 0)) > asks:
                    failure = Fail(describe(error))
                    failure.__cause__ = error
                    return failure
                again.append(msgspec.structs.replace(record, end="a"))
        if again:
            await self._services.write(HistoryChange([(one.number, encode_record(one)) for one in again]))
        return error

    def _returned(self) -> None:
        """The code has the outcome of a step."""
        self._replay.returned()
        self._suspension.look_soon()

    async def _begin(self, name: str, arguments: bytes, asker: object) -> tuple[StepKey, StepRecord | None]:
        """Ask for a step, and wait until its record may be returned or the step may run.

        `asker` is the asyncio task that asks, None for a plain task.
        """
        key, record = self._ask(name, arguments, asker)
        if not self._may_run(record):
            await self._wait_for_turn(name, record)
        return key, record

    def _ask(self, name: str, arguments: bytes, asker: object) -> tuple[StepKey, StepRecord | None]:
        """Note that the code asks for a step."""
        self._refuse_closed(name)
        asked = self._history.ask(name, arguments)
        self._asks += 1
        self._last_ask[asker] = self._asks
        self._replay.asked()
        return asked

    def _may_run(self, record: StepRecord | None) -> bool:
        """Whether a step may run at once, because it has no record and nothing is left to replay."""
        return record is None and self._history.last < MAX_STEPS and self._replay.take_turn(None)

    async def _wait_for_turn(self, name: str, record: StepRecord | None) -> None:
        """Wait until the record of a step may be returned, or the step may run."""
        try:
            await self._replay.turn(name, record)
            if record is None and self._history.last >= MAX_STEPS:
                raise self._exceeded(f"{MAX_STEPS:,} steps")
        except BaseException:
            self._replay.returned()
            raise

    def _refuse_closed(self, name: str) -> None:
        if inside_step.get():
            raise QbullError(f'step "{name}": a step cannot have steps of its own; call the function instead')
        if self._is_over:
            raise QbullError(f'step "{name}": its job has ended; await all steps before the task returns')
        if self._replay.mismatch is not None:
            raise self._replay.mismatch
        if self._services.is_interrupted():
            raise asyncio.CancelledError
        if self.suspended is not None:
            raise self.suspended
        if self.continued is not None:
            raise self.continued

    async def _failed(self, key: StepKey, error: Exception, tried: StepTry, asker: object) -> NoReturn:
        encoded, shown = encode_error(key.name, error)
        record = await self._record(key, "e", encoded, tried)
        self._raised.append((shown, record, asker, self._asks))
        raise shown

    async def _record(self, key: StepKey, end: StepEnd, content: bytes, tried: StepTry) -> StepRecord:
        """Write a record, and wait until it may be returned."""
        number = self._history.last + 1
        self._replay.writing(number)
        try:
            record = await self._put(key, end, content, tried)
        except BaseException:
            self._replay.lost(number)
            raise
        if not self._replay.written(record):
            await self._replay.turn(key.name, record)
        return record

    async def _put(self, key: StepKey, end: StepEnd, content: bytes, tried: StepTry) -> StepRecord:
        """Write a record. It takes the signal or the outcome of a call that it has, or starts a call."""
        number = self._history.last + 1
        self._history.last = number
        started_ms, duration_ms = tried.times_ms()
        asked = self._history.ask_number(key)
        times = (started_ms, duration_ms)
        record = StepRecord(number, *key, end, content, *times, tried.count, asked, tried.schema)
        protected = self._services.protect(record)
        if protected is not content:
            record = msgspec.structs.replace(record, content=protected)
        encoded = encode_record(record)
        if self._history.size + len(encoded) > MAX_HISTORY_BYTES:
            raise self._exceeded(f"{MAX_HISTORY_BYTES:,} bytes")
        told = (tried.signal, tried.joined, tried.call, tried.published)
        change = HistoryChange([(number, encoded)], 1, 0, *told)
        if not await self._write(change):
            raise self._taken_over()
        self._history.put(record, len(encoded))
        return record

    def _write(self, change: HistoryChange) -> Awaitable[bool]:
        write = self._services.write(change)
        # A task that no longer waits for a signal must not leave it half taken.
        return asyncio.shield(write) if change.taken else write

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f'queue "{self._job.queue}": job {self._job.id.decode()} was given to another worker; '
            "the steps of this run are no longer recorded"
        )

    def _outcome(
        self, record: StepRecord, function: StepFunction | SignalWait | TaskCall, asker: object
    ) -> Any:
        """The recorded result. Raises the recorded error."""
        content = self._content(record)
        if record.end != "e":
            return function.decode(content, self._services.hooks)
        error = make_error(record.name, decode_error(content))
        self._raised.append((error, record, asker, self._asks))
        raise error

    def _content(self, record: StepRecord) -> bytes:
        return self._services.open(record)

    def _encode_value(self, name: str, value: Any) -> bytes:
        try:
            return encode_result(value, MAX_HISTORY_BYTES, self._services.hooks)
        except PayloadError as error:
            raise PayloadError(f"{name}: {error}") from None

    def _exceeded(self, bound: str) -> TooLarge:
        self._fatal = error = TooLarge(
            f'task "{self._job.body.task}": the history of a job has at most {bound}; '
            "use checkpoint() in loops or start over with continue_as(), "
            "and let steps return references to large data"
        )
        return error
