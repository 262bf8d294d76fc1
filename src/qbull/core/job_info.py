"""Job info: the public shape of a job, defined once.

Python, the REST API, `qbull job --json` and the dashboard read it.

Names are camelCase in JSON. A field that is added here appears in all of them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from qbull.core.record import Attempt, State, to_datetime

Instant = Annotated[datetime, Meta(tz=True)]
"""A moment with its time zone."""


class AttemptInfo(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One run of a job.

    Attributes:
        attempt: Number of the run, from 1.
        at: When the run started.
        duration_ms: How long it took, in milliseconds.
        error: Why it failed; None if it succeeded.
        worker: The worker that ran it.
        stacktrace: The end of its traceback. The last five of a job are kept.
    """

    attempt: int
    at: Instant | None
    duration_ms: float
    error: str | None
    worker: str
    stacktrace: str | None = None


class JobInfo(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Everything qbull knows about a job. A field is None if its value is unknown or does not apply.

    Attributes:
        id: The job's id.
        queue: Name of its queue.
        task: Name of its task.
        state: waiting, delayed, active, completed, failed or cancelled.
        key: Its ordering key.
        priority: From 1 (first) to 10 (last).
        payload: The arguments of the task by name.
        result: The return value of a completed job.
        error: Why the last run failed, or why the job was cancelled.
        stacktrace: The traceback of the last run.
        failed_reason: Same as `error` if the job has failed permanently.
        attempt: Number of the current or last run, from 1.
        max_attempts: How many runs the job may have.
        progress: The progress that the task reported, in percent.
        progress_done: How much is done, if the task reported a total.
        progress_total: How much there is to do.
        progress_note: The note of the task about its progress.
        created_at: When the job was enqueued.
        due_at: When a delayed job becomes runnable.
        expires_at: The job is cancelled if it has not started by then.
        started_at: When the last run of a finished job started; of an active job, when its worker got it.
        finished_at: When the job ended.
        duration_ms: How long the last run took, in milliseconds.
        timeout: Maximum duration of a run in seconds, if the job has its own.
        partition: The partition that holds the job.
        worker: The worker that runs the job, or ran it last.
        crashes: How many workers died while running it.
        history: Earlier runs that failed, the oldest first.
        schedule: The schedule that created it.
        flow: The flow that it belongs to.
        suspended: Why a durable job has left its worker: "sleeping", "waiting" for a signal, or
            "calling" (it waits for a job that it has called).
        waits_for: The signals that a durable job waits for.
        forked_from: The id of the job whose history it continues.
        continued: How often a durable job has started over with `continue_as`.
    """

    id: str
    queue: str
    task: str
    state: State
    key: str | None
    priority: int
    payload: Any
    result: Any
    error: str | None
    stacktrace: str | None
    failed_reason: str | None
    attempt: int
    max_attempts: int | None
    progress: float | None
    progress_done: float | None
    progress_total: float | None
    progress_note: str | None
    created_at: Instant
    due_at: Instant | None
    expires_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    duration_ms: float | None
    timeout: float | None
    partition: int
    worker: str | None
    crashes: int
    history: tuple[AttemptInfo, ...]
    schedule: str | None
    flow: str | None
    suspended: str | None
    waits_for: tuple[str, ...]
    forked_from: str | None
    continued: int


def attempt_info(attempt: Attempt) -> AttemptInfo:
    """The public shape of an attempt in a job's record."""
    return AttemptInfo(
        attempt=attempt.attempt,
        at=to_datetime(attempt.at_ms),
        duration_ms=round(attempt.duration_ms, 3),
        error=attempt.error,
        worker=attempt.worker,
        stacktrace=attempt.stacktrace,
    )
