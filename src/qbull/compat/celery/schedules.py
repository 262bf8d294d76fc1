"""Schedules, under the name that their module has in Celery."""

from __future__ import annotations

from typing import Any

from qbull.compat.celery.crontab import crontab, schedule
from qbull.compat.celery.instead import CELERY_MODULE_HINTS
from qbull.compat.refusal import refuse_name

__all__ = ["crontab", "schedule"]


def __getattr__(name: str) -> Any:
    refuse_name(__name__, name, CELERY_MODULE_HINTS)
