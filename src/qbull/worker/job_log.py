"""The job log: a line when a job starts and one when it ends, and the job that a line of a task belongs to.

The lines go through the logger `qbull.jobs` at INFO. `qbull worker` shows them; in other programs the
application's configuration decides. If the level is off, a job costs one check.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from qbull.observe.log import JOB_FIELDS
from qbull.worker.chunk import jobs_running_here
from qbull.worker.current import RunningJob

job_log = logging.getLogger("qbull.jobs")
FAILURE_LOGGER = "qbull.worker.failures"
failure_log = logging.getLogger(FAILURE_LOGGER)

LoggedOutcome: TypeAlias = Literal[
    "completed", "retry", "failed", "cancelled", "released", "suspended", "continued"
]
MAX_LOGGED_IDS = 10
"""Ids that a log line of a chunk names; the number of the others follows."""


class JobLogFilter(logging.Filter):
    """Adds the running job to log records: `job_id`, `task`, `queue`, `trace_id`; None outside of a job.

    Add it to a handler. `qbull worker` adds it to every handler that exists when the app is loaded. A value
    that the caller gives in `extra` stays.
    """

    def __init__(self) -> None:
        super().__init__()

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields. No record is dropped.

        Args:
            record: The record that a handler is about to write.
        """
        present = record.__dict__
        for name, value in zip(JOB_FIELDS, _running_fields(), strict=True):
            present.setdefault(name, value)
        return True


def follow_jobs_in_log(*, job_log_on: bool) -> None:
    """Let all handlers of this process know the running job, and turn the job log off if nobody wants it."""
    job_filter = JobLogFilter()
    for handler in _handlers():
        if not any(isinstance(present, JobLogFilter) for present in handler.filters):
            handler.addFilter(job_filter)
    if not job_log_on:
        job_log.setLevel(logging.WARNING)


def logs_jobs() -> bool:
    """Whether start and end of each job are logged."""
    return job_log.isEnabledFor(logging.INFO)


def log_start(job: RunningJob) -> None:
    """Log that a job starts, unless the level is off."""
    if job_log.isEnabledFor(logging.INFO):
        with suppress(Exception):
            # A handler of the application that fails must not fail the job.
            job_log.info(
                'queue "%s": job %s (%s) started: %s', *_named(job), _details(job), extra=fields_of(job)
            )


def log_end(job: RunningJob, outcome: LoggedOutcome, duration: float) -> None:
    """Log how a job ended and its duration in seconds, unless the level is off."""
    if job_log.isEnabledFor(logging.INFO):
        extra = fields_of(job) | {"outcome": outcome, "duration": round(duration, 6)}
        with suppress(Exception):
            job_log.info(
                'queue "%s": job %s (%s) ended: %s, %.3g s, %s',
                *_named(job),
                outcome,
                duration,
                _details(job),
                extra=extra,
            )


def log_failure(
    level: int,
    text: str,
    args: tuple[object, ...],
    error: Exception,
    stacktrace: str | None,
    job: RunningJob | None,
) -> None:
    """Log a failed attempt with the traceback of its task, so that handlers of the application see it too."""
    if not failure_log.isEnabledFor(level):
        return
    raised = (type(error), error, error.__traceback__) if stacktrace and error.__traceback__ else None
    extra = fields_of(job) if job is not None else {}
    with suppress(Exception):
        record = failure_log.makeRecord(FAILURE_LOGGER, level, __file__, 0, text, args, raised, None, extra)
        # The traceback without qbull's own frames, and bounded in length.
        record.exc_text = stacktrace
        failure_log.handle(record)


def fields_of(job: RunningJob) -> dict[str, Any]:
    """The fields of a job in qbull's own log lines."""
    return {
        "job_id": job.id.decode("utf-8", "replace"),
        "task": job.body.task,
        "queue": job.queue,
        "key": job.body.key,
        "attempt": job.body.attempt,
        "trace_id": _trace_id(job),
    }


def _running_fields() -> tuple[str | None, ...]:
    """The values of JOB_FIELDS for what runs here."""
    jobs = jobs_running_here()
    if not jobs:
        return (None, None, None, None)
    ids = ",".join(job.id.decode("utf-8", "replace") for job in jobs[:MAX_LOGGED_IDS])
    if len(jobs) > MAX_LOGGED_IDS:
        ids += f",+{len(jobs) - MAX_LOGGED_IDS}"
    return ids, jobs[0].body.task, jobs[0].queue, _trace_id(jobs[0])


def _named(job: RunningJob) -> tuple[str, str, str]:
    return job.queue, job.id.decode("utf-8", "replace"), job.body.task


def _details(job: RunningJob) -> str:
    key = "" if job.body.key is None else f', key "{job.body.key}"'
    return f"attempt {job.body.attempt}{key}"


def _trace_id(job: RunningJob) -> str | None:
    """The trace of this run; without tracing in the worker, that of its enqueue."""
    parts = job.body.trace.split("-", 2)
    return job.trace_id or (parts[1] if len(parts) > 1 else None)


def _handlers() -> Iterator[logging.Handler]:
    root = logging.getLogger()
    for logger in (root, *root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
