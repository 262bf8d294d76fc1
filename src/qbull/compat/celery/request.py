"""The running job, as `self.request` of Celery."""

from __future__ import annotations

from typing import Any

from qbull.compat.celery.instead import CELERY_REQUEST_ATTRIBUTE_HINTS
from qbull.compat.refusal import refuse_attribute
from qbull.errors import NotFound
from qbull.worker.current import current_job

RETRIES_HEADER = "celery.retries"
"""The header of jobs that were moved from Celery with the number of their retries there."""


class CeleryRequest:
    """The running job, as `self.request` of Celery."""

    def __init__(self, task: str) -> None:
        self.id: str | None = None
        self.task = task
        self.retries = 0
        self.called_directly = True
        self.is_eager = False
        try:
            job = current_job()
        except NotFound:
            return
        if job.task == task:
            self.id, self.called_directly = job.id, False
            self.retries = job.attempt - 1 + int(job.headers.get(RETRIES_HEADER, 0))

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, CELERY_REQUEST_ATTRIBUTE_HINTS)
