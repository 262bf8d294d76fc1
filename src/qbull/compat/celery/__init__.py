"""qbull for code that was written for Celery: `from qbull.compat.celery import Celery, shared_task, crontab`.

docs/guides/from_celery.md lists the supported calls and the differences. Jobs made here are ordinary qbull
jobs.
"""

from __future__ import annotations

from typing import Any

from qbull.compat.celery import signals, states
from qbull.compat.celery.app import Celery, shared_task
from qbull.compat.celery.canvas import chain, chord, chunks, group, xmap, xstarmap
from qbull.compat.celery.crontab import crontab, schedule
from qbull.compat.celery.current import current_app, current_task
from qbull.compat.celery.exceptions import (
    MaxRetriesExceededError,
    Retry,
    SoftTimeLimitExceeded,
    TimeoutError,  # noqa: A004
)
from qbull.compat.celery.group_result import GroupResult, ResultSet
from qbull.compat.celery.instead import CELERY_MODULE_HINTS
from qbull.compat.celery.result import AsyncResult
from qbull.compat.celery.signature import Signature, maybe_signature, signature, subtask
from qbull.compat.celery.task import CeleryTask
from qbull.compat.celery.utils import uuid
from qbull.compat.celery.utils.log import get_task_logger
from qbull.compat.refusal import refuse_name

Task = CeleryTask

__all__ = [
    "AsyncResult",
    "Celery",
    "CeleryTask",
    "GroupResult",
    "MaxRetriesExceededError",
    "ResultSet",
    "Retry",
    "Signature",
    "SoftTimeLimitExceeded",
    "Task",
    "TimeoutError",
    "chain",
    "chord",
    "chunks",
    "crontab",
    "current_app",
    "current_task",
    "get_task_logger",
    "group",
    "maybe_signature",
    "schedule",
    "shared_task",
    "signals",
    "signature",
    "states",
    "subtask",
    "uuid",
    "xmap",
    "xstarmap",
]


def __getattr__(name: str) -> Any:
    refuse_name(__name__, name, CELERY_MODULE_HINTS)
