"""The running job, as `self.request` of Celery."""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from qbull.compat.celery.instead import CELERY_REQUEST_ATTRIBUTE_HINTS, request_change_hint
from qbull.compat.celery.run_events import current_run
from qbull.compat.celery.task_options import celery_priority_of
from qbull.compat.exact_values import as_it_was
from qbull.compat.refusal import refuse_attribute
from qbull.core.record import priority_of
from qbull.errors import NotFound
from qbull.worker.current import current_job

RETRIES_HEADER = "celery.retries"
"""The header of jobs that were moved from Celery with the number of their retries there."""


CALL_HEADERS_HEADER = "celery.headers"
"""The header of jobs that has the headers of `apply_async(headers=…)`, as JSON."""

SOFT_LIMIT_HEADER = "celery.soft_time_limit"
"""The header of jobs that has the seconds of `apply_async(soft_time_limit=…)`."""

PRIORITY_HEADER = "celery.priority"
"""The header of jobs that has Celery's priority, if that of the job stands for several."""


class CeleryRequest:
    """The running job, as `self.request` of Celery. It cannot be changed: each use reads it again.

    Args:
        task: The name of the task.
    """

    def __init__(self, task: str) -> None:
        self._read(task)
        self.__dict__["_is_complete"] = True

    def _read(self, task: str) -> None:
        self.id: str | None = None
        self.task = task
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.retries = 0
        self.called_directly = True
        self.is_eager = False
        self.headers: dict[str, Any] = {}
        self.delivery_info: dict[str, Any] = {}
        self.hostname = socket.gethostname()
        self.soft_time_limit: float | None = None
        run = current_run.get()
        if run is not None and run.task.name == task:
            self.args, self.kwargs = run.args, run.kwargs
            if run.eager_id is not None:
                self.id, self.retries = run.eager_id, run.retries
                self.is_eager, self.called_directly = True, False
                return
        try:
            job = current_job()
        except NotFound:
            return
        if job.task == task:
            self.id, self.called_directly = job.id, False
            self.retries = job.attempt - 1 + int(job.headers.get(RETRIES_HEADER, 0))
            known = job.headers.get(PRIORITY_HEADER)
            priority = celery_priority_of(priority_of(job._running.record)) if known is None else int(known)
            self.delivery_info = {"exchange": "", "routing_key": job.queue, "priority": priority}
            if SOFT_LIMIT_HEADER in job.headers:
                self.soft_time_limit = float(job.headers[SOFT_LIMIT_HEADER])
            if CALL_HEADERS_HEADER in job.headers:
                self.headers = as_it_was(msgspec.json.decode(job.headers[CALL_HEADERS_HEADER]))

    @property
    def correlation_id(self) -> str | None:
        return self.id

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value of the request, or a header of the call.

        Args:
            name: The name of the value.
            default: Returned if there is no such value.
        """
        return getattr(self, name, self.headers.get(name, default))

    def __setattr__(self, name: str, value: Any) -> None:
        if "_is_complete" in self.__dict__:
            raise AttributeError(f"self.request.{name} = …: {request_change_hint(name)}", name=name, obj=self)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        headers = self.__dict__.get("headers", {})
        if name not in headers:
            refuse_attribute(self, name, CELERY_REQUEST_ATTRIBUTE_HINTS)
        return headers[name]
