"""Retry: how often and when a call is retried, given with the call as in RQ.

It travels with the job as a header.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from qbull.compat.rq.exceptions import RqArgumentsError
from qbull.core.outcome import describe
from qbull.errors import Fail, RetryAfter
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
        enqueue_at_front: Refused when the call is made: a job keeps its priority.
    """

    def __init__(
        self,
        max: int,  # noqa: A002 - the name in RQ
        interval: int | Iterable[int] = 0,
        enqueue_at_front: bool = False,
    ) -> None:
        intervals = [interval] if isinstance(interval, int) else list(interval)
        if max < 1 or not intervals or min(intervals) < 0:
            raise RqArgumentsError(
                f"Retry(max={max}, interval={interval!r}): give at least one retry, and seconds from 0"
            )
        self.max = max
        self.intervals = intervals
        self.enqueue_at_front = enqueue_at_front

    def __repr__(self) -> str:
        interval = self.intervals[0] if len(self.intervals) == 1 else self.intervals
        return f"Retry(max={self.max}, interval={interval!r}, enqueue_at_front={self.enqueue_at_front!r})"

    @staticmethod
    def get_interval(count: int, intervals: int | Sequence[int] | None) -> int:
        """The seconds before a retry.

        Args:
            count: The number of the retry, from 0.
            intervals: Seconds before each retry. If there are fewer, the last one is repeated.
        """
        if isinstance(intervals, int):
            return intervals
        return intervals[min(count, len(intervals) - 1)] if intervals else 0

    def header(self) -> str:
        return waits_of(self.max, self.intervals)


def waits_of(left: int, intervals: Sequence[int]) -> str:
    """Return the header for a job that has `left` retries."""
    last = len(intervals)
    return ",".join(str(intervals[max(last - n, 0)]) for n in range(left, 0, -1))


def intervals_in(header: str | None, *, repeats_first: bool) -> list[int] | None:
    """The shortest `intervals` that mean the same as a header; None without one.

    Args:
        header: The header of retries or repeats.
        repeats_first: Whether a missing interval is the first one, as with retries, or the last one.
    """
    if not header:
        return None
    waits = [int(wait) for wait in header.split(",")]
    at = 0 if repeats_first else -1
    while len(waits) > 1 and waits[at] == waits[1 if repeats_first else -2]:
        del waits[at]
    return waits


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
