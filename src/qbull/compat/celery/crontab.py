"""Schedules of Celery: `crontab(minute=30, hour=2)`, `schedule(300)`, a timedelta or seconds, as a rule of
qbull.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from qbull.core.schedule_rule import ScheduleRule
from qbull.errors import DeclarationError

CrontabField = int | str | Iterable[int]


@dataclass(frozen=True)
class crontab:
    """The five fields of a Celery crontab. `expression` is the cron expression.

    Args:
        minute: From 0 to 59, for example 30, "*/15" or [0, 30]; "*" for every minute.
        hour: From 0 to 23.
        day_of_week: From 0 (Sunday) to 6, or names such as "mon-fri".
        day_of_month: From 1 to 31.
        month_of_year: From 1 to 12.
    """

    minute: CrontabField = "*"
    hour: CrontabField = "*"
    day_of_week: CrontabField = "*"
    day_of_month: CrontabField = "*"
    month_of_year: CrontabField = "*"

    def __post_init__(self) -> None:
        if _text(self.day_of_week) != "*" and _text(self.day_of_month) != "*":
            raise DeclarationError(
                "crontab(day_of_week=…, day_of_month=…): in Celery both must match, in cron either; "
                "give one, and check the other inside the task"
            )

    @property
    def expression(self) -> str:
        days = re.sub(r"([a-z]{3})[a-z]+", r"\1", _text(self.day_of_week).lower())
        fields = (self.minute, self.hour, self.day_of_month, self.month_of_year)
        return " ".join([*map(_text, fields), days])


@dataclass(frozen=True)
class schedule:
    """A fixed interval.

    Args:
        run_every: Seconds, or a timedelta.
    """

    run_every: float | timedelta


def rule_of(name: str, when: object, zone: str) -> ScheduleRule:
    """Return the rule for the value of "schedule" in an entry of beat_schedule."""
    match when:
        case crontab():
            return ScheduleRule(when.expression, tz=zone)
        case schedule():
            return ScheduleRule(every=_seconds(when.run_every))
        case timedelta() | int() | float():
            return ScheduleRule(every=_seconds(when))
    raise DeclarationError(
        f'beat_schedule "{name}": schedule={when!r}: '
        "use crontab(…) of qbull.compat.celery, a timedelta or seconds"
    )


def _seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _text(field: CrontabField) -> str:
    if isinstance(field, int | str):
        return str(field).replace(" ", "")
    return ",".join(str(number) for number in sorted(field))
