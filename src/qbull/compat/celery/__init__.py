"""qbull for code that was written for Celery: `from qbull.compat.celery import Celery, shared_task, crontab`.

docs/guides/from_celery.md lists the supported calls and the differences. Jobs made here are ordinary qbull
jobs.
"""

from __future__ import annotations

from typing import Any

from qbull.compat.celery.app import Celery, shared_task
from qbull.compat.celery.crontab import crontab, schedule
from qbull.compat.celery.instead import CELERY_MODULE_HINTS
from qbull.compat.celery.result import AsyncResult
from qbull.compat.celery.task import CeleryTask, MaxRetriesExceededError, Retry
from qbull.compat.refusal import refuse_name

__all__ = [
    "AsyncResult",
    "Celery",
    "CeleryTask",
    "MaxRetriesExceededError",
    "Retry",
    "crontab",
    "schedule",
    "shared_task",
]


def __getattr__(name: str) -> Any:
    refuse_name(__name__, name, CELERY_MODULE_HINTS)
