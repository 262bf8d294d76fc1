"""Results with the API of RQ: `job.latest_result()` and `job.results()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from qbull.core.job_info import JobInfo


@dataclass(frozen=True)
class Result:
    """The outcome of one run.

    Args:
        job_id: The id of the job.
        type: How the run ended.
        created_at: When it ended, or started if it was followed by another run.
        return_value: The result of the function.
        exc_string: The traceback of a failed run.
    """

    class Type(Enum):
        SUCCESSFUL = 1
        FAILED = 2
        STOPPED = 3
        RETRIED = 4

    job_id: str
    type: Type
    created_at: datetime | None
    return_value: Any = None
    exc_string: str | None = None


RESULT_TYPES = {
    "completed": Result.Type.SUCCESSFUL,
    "failed": Result.Type.FAILED,
    "cancelled": Result.Type.STOPPED,
}


def results_of(info: JobInfo, value: Callable[[], Any]) -> list[Result]:
    """The outcomes of a job, the newest first. `value` reads the result of a completed job."""
    found = [
        Result(info.id, Result.Type.RETRIED, run.at, None, run.stacktrace or run.error)
        for run in reversed(info.history)
    ]
    kind = RESULT_TYPES.get(info.state)
    if kind is None:
        return found
    if kind is Result.Type.SUCCESSFUL:
        return [Result(info.id, kind, info.finished_at, value()), *found]
    return [Result(info.id, kind, info.finished_at, None, info.stacktrace or info.error), *found]
