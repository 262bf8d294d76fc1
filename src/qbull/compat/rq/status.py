"""The states of a job, with RQ's names."""

from __future__ import annotations

from enum import StrEnum

from qbull.core.job_info import JobInfo


class JobStatus(StrEnum):
    """The states of RQ. `stopped` and `created` do not occur here."""

    CREATED = "created"
    QUEUED = "queued"
    FINISHED = "finished"
    FAILED = "failed"
    STARTED = "started"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    STOPPED = "stopped"
    CANCELED = "canceled"


RQ_STATES = {
    "waiting": JobStatus.QUEUED,
    "delayed": JobStatus.SCHEDULED,
    "active": JobStatus.STARTED,
    "completed": JobStatus.FINISHED,
    "failed": JobStatus.FAILED,
    "cancelled": JobStatus.CANCELED,
}


def status_of(info: JobInfo) -> JobStatus:
    return JobStatus.DEFERRED if is_deferred(info) else RQ_STATES[info.state]


def is_deferred(info: JobInfo) -> bool:
    """Whether a job waits for others."""
    return info.state == "delayed" and info.due_at is None and info.suspended is None
