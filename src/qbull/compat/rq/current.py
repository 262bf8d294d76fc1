"""get_current_job(): the running job, as its function sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from qbull.compat.rq.instead import RQ_JOB_ATTRIBUTE_HINTS
from qbull.compat.rq.job import Job
from qbull.compat.rq.retry import RETRY_WAITS_HEADER, waits_in
from qbull.errors import NotFound, QbullError
from qbull.queue import Queue
from qbull.worker.current import CurrentJob, current_job

_running_queue: ContextVar[Queue | None] = ContextVar("qbull_rq_queue", default=None)


@contextmanager
def running_in(queue: Queue) -> Iterator[None]:
    """Within this block a registered function of this queue runs."""
    token = _running_queue.set(queue)
    try:
        yield
    finally:
        _running_queue.reset(token)


class RqCurrentJob(Job):
    """The running job. In a task that is not registered with `Queue.register`, it has only what the worker
    knows: its id, queue, function, attempt and times.
    """

    _class_hints = RQ_JOB_ATTRIBUTE_HINTS

    def __init__(self, run: CurrentJob, queue: Queue | None) -> None:
        if queue is not None:
            super().__init__(queue.app, queue.job(run.id))
        self.id, self.origin, self.attempt = run.id, run.queue, run.attempt
        self._current = run

    def __getattr__(self, name: str) -> Any:
        if name in ("_app", "_handle", "_meta"):
            raise QbullError(
                f'get_current_job(): task "{self._current.task}" is not registered with '
                "qbull.compat.rq.Queue; use qbull.current_job() there"
            )
        return super().__getattr__(name)

    @property
    def func_name(self) -> str:
        return self._current.task

    @property
    def enqueued_at(self) -> datetime:
        return self._current.enqueued_at

    @property
    def retries_left(self) -> int:
        return max(len(waits_in(self._current.headers, RETRY_WAITS_HEADER)) - self.attempt + 1, 0)


def get_current_job(connection: Any = None, job_class: Any = None) -> RqCurrentJob | None:
    """Return the running job; None outside of a job, as in RQ.

    Args:
        connection: Ignored.
        job_class: Ignored.
    """
    try:
        run = current_job()
    except NotFound:
        return None
    queue = _running_queue.get()
    return RqCurrentJob(run, queue if queue is not None and queue.name == run.queue else None)
