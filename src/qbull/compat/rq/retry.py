"""Retry: how often and when a call is retried, given with the call as in RQ.

It travels with the job as a header.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qbull.core.outcome import describe
from qbull.errors import ArgumentsError, RetryAfter
from qbull.worker.current import current_job

RETRY_WAITS_HEADER = "rq.retry"
"""The header with the seconds before each retry, separated by commas."""


class Retry:
    """`Retry(max=3, interval=[10, 30, 60])`: three retries.

    Args:
        max: The number of retries.
        interval: Seconds before each retry. If there are fewer than `max`, the first one is repeated.
        enqueue_at_front: Refused: a job keeps its priority.
    """

    def __init__(
        self,
        max: int,  # noqa: A002 - the name in RQ
        interval: int | Iterable[int] = 0,
        enqueue_at_front: bool = False,
    ) -> None:
        if enqueue_at_front:
            raise ArgumentsError(
                "Retry(enqueue_at_front=…): a job keeps its priority; enqueue it with at_front=True"
            )
        intervals = [interval] if isinstance(interval, int) else list(interval)
        if max < 1 or not intervals or min(intervals) < 0:
            raise ArgumentsError(
                f"Retry(max={max}, interval={interval!r}): give at least one retry, and seconds from 0"
            )
        self.max = max
        self.intervals = intervals

    def header(self) -> str:
        return waits_of(self.max, self.intervals)


def waits_of(left: int, intervals: Sequence[int]) -> str:
    """Return the header for a job that has `left` retries."""
    last = len(intervals)
    return ",".join(str(intervals[max(last - n, 0)]) for n in range(left, 0, -1))


def raise_retry(error: Exception) -> None:
    """Raise RetryAfter if the call has asked for another retry of the running job."""
    job = current_job()
    waits = [int(wait) for wait in job.headers.get(RETRY_WAITS_HEADER, "").split(",") if wait]
    if job.attempt <= len(waits):
        raise RetryAfter(waits[job.attempt - 1], describe(error)) from error
