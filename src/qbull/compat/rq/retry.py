"""Retry: how often and when a call is retried, given with the call as in RQ.

It travels with the job as a header.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from qbull.core.outcome import describe
from qbull.errors import ArgumentsError, Fail, RetryAfter
from qbull.worker.current import current_job

RETRY_WAITS_HEADER = "rq.retry"
"""The header with the seconds before each retry, separated by commas."""


REPEAT_HEADER = "rq.repeat"
"""The same for each repeat."""


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

    def __repr__(self) -> str:
        return f"Retry(max={self.max}, interval={self.intervals})"

    def header(self) -> str:
        return waits_of(self.max, self.intervals)


def waits_of(left: int, intervals: Sequence[int]) -> str:
    """Return the header for a job that has `left` retries."""
    last = len(intervals)
    return ",".join(str(intervals[max(last - n, 0)]) for n in range(left, 0, -1))


def waits_in(headers: Mapping[str, str], name: str) -> list[int]:
    """The seconds before each retry or repeat that a call has asked for."""
    return [int(wait) for wait in headers.get(name, "").split(",") if wait]


def raise_returned(retry: Retry) -> NoReturn:
    """A function has returned Retry(…): run it again, or let it fail after the last retry."""
    job = current_job()
    waits = [int(wait) for wait in retry.header().split(",")]
    if job.attempt <= len(waits):
        raise RetryAfter(waits[job.attempt - 1], f"the function returned {retry!r}")
    raise Fail(f"the function returned {retry!r}, and has had all its retries")


def raise_retry(error: Exception) -> None:
    """Raise RetryAfter if the call has asked for another retry of the running job."""
    job = current_job()
    waits = waits_in(job.headers, RETRY_WAITS_HEADER)
    if job.attempt <= len(waits):
        raise RetryAfter(waits[job.attempt - 1], describe(error)) from error
