"""The options that a call was made with, as attributes of its job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qbull.compat.rq.functions import function_behind
from qbull.compat.rq.job_data import JobData
from qbull.compat.rq.meta import FAILURE_TTL_HEADER, RESULT_TTL_HEADER
from qbull.compat.rq.retry import REPEAT_HEADER, RETRY_WAITS_HEADER, intervals_in, waits_in

SUCCESS_HEADER, FAILURE_HEADER = "rq.on_success", "rq.on_failure"


class RqJobOptions(JobData):
    """The options of a call. Every attribute asks the server.

    Args:
        app: The app that has the job.
        handle: The job as qbull's own calls return it.
    """

    @property
    def ttl(self) -> int | None:
        """Seconds within which the job must start; None for any time."""
        info = self._info()
        if info.expires_at is None:
            return None
        return round((info.expires_at - info.created_at).total_seconds())

    def get_ttl(self, default_ttl: int | None = None) -> int | None:
        """Return `ttl`.

        Args:
            default_ttl: The answer if the call has given none.
        """
        own = self.ttl
        return default_ttl if own is None else own

    @property
    def result_ttl(self) -> int | None:
        """Seconds for which the call has asked to keep its result. The retention of the queue decides."""
        return self._seconds_in(RESULT_TTL_HEADER)

    def get_result_ttl(self, default_ttl: int | None = None) -> int | None:
        """Return `result_ttl`.

        Args:
            default_ttl: The answer if the call has given none.
        """
        own = self.result_ttl
        return default_ttl if own is None else own

    @property
    def failure_ttl(self) -> int | None:
        """Seconds for which the call has asked to keep its failure. The retention of the queue decides."""
        return self._seconds_in(FAILURE_TTL_HEADER)

    @property
    def retries_left(self) -> int | None:
        """How often the call may still be retried; None if it has no retries."""
        waits = waits_in(self._run(self._headers()), RETRY_WAITS_HEADER)
        return max(len(waits) - self._info().attempt + 1, 0) if waits else None

    @property
    def retry_intervals(self) -> list[int] | None:
        """Seconds before each retry; None if the call has no retries."""
        return intervals_in(self._run(self._headers()).get(RETRY_WAITS_HEADER), repeats_first=True)

    def get_retry_interval(self) -> int:
        """Seconds before the next retry."""
        left = self.retries_left
        waits = waits_in(self._run(self._headers()), RETRY_WAITS_HEADER)
        return waits[-left] if left else 0

    @property
    def should_retry(self) -> bool:
        return bool(self.retries_left)

    @property
    def repeats_left(self) -> int | None:
        """How often the call will still be repeated; None if it is not repeated."""
        return len(waits_in(self._run(self._headers()), REPEAT_HEADER)) or None

    @property
    def repeat_intervals(self) -> list[int] | None:
        """Seconds before each repeat; None if the call is not repeated."""
        return intervals_in(self._run(self._headers()).get(REPEAT_HEADER), repeats_first=False)

    @property
    def func(self) -> Callable[..., Any] | None:
        """The function; None if it is not registered in this process."""
        queue = self._app.queues.get(self.origin)
        task = None if queue is None else queue.tasks.get(self.func_name)
        return None if task is None else function_behind(task)

    @property
    def success_callback(self) -> Callable[..., Any] | None:
        """The callback of a success; None if there is none, or this process does not know it."""
        return self._callback(SUCCESS_HEADER)

    @property
    def failure_callback(self) -> Callable[..., Any] | None:
        """The callback of a failure; None if there is none, or this process does not know it."""
        return self._callback(FAILURE_HEADER)

    def _callback(self, header: str) -> Callable[..., Any] | None:
        from qbull.compat.rq.run import callbacks_of  # It needs Job.

        return callbacks_of(self._app).get(self._run(self._headers()).get(header, ""))

    def _seconds_in(self, header: str) -> int | None:
        text = self._run(self._headers()).get(header)
        return None if text is None else int(text)
