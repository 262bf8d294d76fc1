"""Recorded steps: the history of a durable job as people see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from qbull.core.calls import decode_called
from qbull.core.codec import decode_untyped
from qbull.core.durable import CHECKPOINT_PREFIX, STARTS, StepEnd, StepKey, StepRecord
from qbull.core.record import due_datetime, to_datetime

StepState = Literal["completed", "failed", "retrying", "checkpoint", "sleeping", "waiting", "calling"]
_STATES_BY_END: dict[StepEnd, StepState] = {
    "r": "completed",
    "e": "failed",
    "a": "retrying",
    "c": "checkpoint",
    "b": "sleeping",
    "w": "waiting",
    "l": "calling",
}


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A recorded step of a durable job, as `job.steps()` returns it.

    Args:
        number: its position in the history, in the order in which the steps ended.
        name: its name.
        state: "completed", "failed", "retrying" (it failed and runs again), "checkpoint", "sleeping",
            "waiting" (for a signal) or "calling" (another job runs).
        result: its result, or the value of a checkpoint or a signal, as plain data.
        error: the error of a failed step.
        started_at: when it started.
        duration: how many seconds it took, with its own retries.
        attempts: how often the function was called, or how often the value of a checkpoint was kept.
        until: when a sleep ends that has not ended, or when a wait times out.
        called: the queue and the id of the job that a call has enqueued.
        schema: the JSON Schema of the signal that a wait has not got yet, if the task gives a type.
        omitted: the result was left out, because the whole answer would be too large.
    """

    number: int
    name: str
    state: StepState
    result: Any
    error: str | None
    started_at: datetime
    duration: float
    attempts: int
    until: datetime | None = None
    called: Mapping[str, str] | None = None
    schema: Mapping[str, Any] | None = None
    omitted: bool = False


def show_records(
    records: Sequence[StepRecord],
    open_content: Callable[[StepRecord], bytes],
    limit_bytes: int | None = None,
) -> list[RecordedStep]:
    """The records of a history for people, without the starts of what has ended.

    The contents together take about `limit_bytes` at most; further ones are omitted.
    """
    ended = {record.key for record in records if record.end not in STARTS}
    called: dict[StepKey, Mapping[str, str]] = {}
    shown, size = [], 0
    for record in records:
        is_omitted = limit_bytes is not None and size > limit_bytes
        content = b"null" if is_omitted else open_content(record)
        size += len(content)
        if record.end == "l" and (job := _called_job(content)) is not None:
            called[record.key] = job
        if record.end not in STARTS or record.key not in ended:
            shown.append(_show(record, content, called.get(record.key), is_omitted))
    return shown


def _show(
    record: StepRecord, content: bytes, called: Mapping[str, str] | None, is_omitted: bool
) -> RecordedStep:
    """A record for people, with its opened content."""
    value, error, until = decode_untyped(content), None, None
    if record.end in STARTS:
        until = due_datetime(value) if isinstance(value, int) else None
        value = None
    elif record.end in ("e", "a"):
        value, error = None, _error_text(value)
    return RecordedStep(
        record.number,
        record.name.removeprefix(CHECKPOINT_PREFIX) if record.end == "c" else record.name,
        _STATES_BY_END[record.end],
        value,
        error,
        to_datetime(record.started_ms),
        record.duration_ms / 1000,
        record.attempts,
        until,
        called,
        decode_untyped(record.schema) if record.end == "w" and record.schema else None,
        is_omitted,
    )


def _called_job(content: bytes) -> Mapping[str, str] | None:
    """The job of a call; None if this app cannot read the record."""
    try:
        return decode_called(content).shown
    except ValueError:
        return None


def _error_text(value: Any) -> str:
    """The text of a recorded error. If this app cannot read it, the reason."""
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    if "text" in value:
        return str(value["text"])
    return ", ".join(f"{name}: {reason}" for name, reason in value.items())
