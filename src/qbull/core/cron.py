"""Cron: when a schedule ticks. Pure: an instant in, the next one out; instants are milliseconds since 1970.

cronsim computes local times. This module handles daylight saving time as Debian's cron does:

- An expression that names its minutes and hours ("30 2 * * *") means a local time, and ticks once for each.
  If the clocks skip that time, it ticks right after the change; if they repeat it, it ticks the first time.
- An expression whose minutes or hours start with a star ("*/30 * * * *") follows real time: it ticks whenever
  the local time matches, twice in a repeated hour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

CRON_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
CRON_FIELDS = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L or LW",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT",
}
MIN_INTERVAL_MS = 100
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone here
_OFFSET_LOOKAHEAD_SECONDS = 6 * 3600
"""No zone changes its offset twice within this time."""


class Calendar(Protocol):
    def after(self, ms: int) -> int | None:
        """The first tick after this instant; None if there is none."""


class Interval(msgspec.Struct, frozen=True):
    """Ticks at a fixed interval, counted from an anchor, so that everybody computes the same instants."""

    period_ms: int
    anchor_ms: int = 0

    def after(self, ms: int) -> int:
        if ms < self.anchor_ms:
            return self.anchor_ms
        return ms + self.period_ms - (ms - self.anchor_ms) % self.period_ms


class Cron:
    """A cron expression in a zone. Raises ValueError if it cannot be parsed or never ticks."""

    def __init__(self, expression: str, zone: str) -> None:
        self._expression = check_expression(expression)
        self._zone = zone_of(zone)
        minute, hour = self._expression.split()[-5:-3]
        self._fixed = not minute.startswith("*") and not hour.startswith("*")

    def after(self, ms: int) -> int | None:
        second = ms // 1000
        found = self._local(second) if self._fixed else self._real(second)
        return None if found is None else found * 1000

    def _local(self, second: int) -> int | None:
        """By local time: each matching local time ticks once."""
        for local in self._matches(_LOCAL_EPOCH + timedelta(seconds=second + self._offset(second))):
            instant = self._instant(local)
            # In a repeated hour the local time goes back, and only the first pass counts.
            if instant > second:
                return instant
        return None

    def _real(self, second: int) -> int | None:
        """By real time: every instant whose local time matches."""
        offset = self._offset(second)
        while True:
            local = next(self._matches(_LOCAL_EPOCH + timedelta(seconds=second + offset)), None)
            if local is None:
                return None
            instant = _seconds(local) - offset
            change = self._change(second, instant, offset)
            if change is None:
                return instant
            second, offset = change - 1, self._offset(change)

    def _matches(self, local: datetime) -> Iterator[datetime]:
        return iter(CronSim(self._expression, local))

    def _instant(self, local: datetime) -> int:
        """The first instant at which the clocks show this time; if they skip it, that of the change."""
        aware = local.replace(tzinfo=self._zone)
        instant = int(aware.timestamp())
        if instant + self._offset(instant) == _seconds(local):
            return instant
        # By the offset after the change, this is an instant before the change.
        before = int(aware.replace(fold=1).timestamp())
        leap = self._change(before, instant, self._offset(before))
        return instant if leap is None else leap

    def _change(self, second: int, upto: int, offset: int) -> int | None:
        """The first instant after `second`, up to `upto`, at which the clocks are not `offset` from UTC."""
        while second < upto:
            ahead = min(second + _OFFSET_LOOKAHEAD_SECONDS, upto)
            if self._offset(ahead) != offset:
                while ahead - second > 1:
                    middle = (second + ahead) // 2
                    if self._offset(middle) == offset:
                        second = middle
                    else:
                        ahead = middle
                return ahead
            second = ahead
        return None

    def _offset(self, second: int) -> int:
        offset = datetime.fromtimestamp(second, self._zone).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())


def check_expression(text: str) -> str:
    """The expression with its nickname resolved. Raises ValueError if it cannot be parsed or never ticks."""
    if not isinstance(text, str):
        raise ValueError(f'cron={text!r}: give an expression such as "0 9 * * *"')
    expression = " ".join(CRON_NICKNAMES.get(text.strip().lower(), text).split())
    if expression.startswith("@"):
        raise ValueError(f'cron="{text}": there is no such name; use one of {", ".join(CRON_NICKNAMES)}')
    if len(expression.split()) not in (5, 6):
        raise ValueError(
            f'cron="{text}": has {len(expression.split())} fields; '
            "give five (minute hour day month weekday), or six with the seconds first"
        )
    if not _ticks_ever(expression, text):
        raise ValueError(f'cron="{text}": never ticks; there is no such day')
    return expression


@lru_cache(maxsize=1000)
def _ticks_ever(expression: str, text: str) -> bool:
    try:
        return next(CronSim(expression, datetime(2000, 1, 1)), None) is not None  # noqa: DTZ001
    except CronSimError as error:
        fact = str(error).removeprefix("Bad ")
        if fact == "day-of-month" and _ticks_in_any_month(expression):
            return False
        number = list(CRON_FIELDS).index(fact) if fact in CRON_FIELDS else 0
        field = ["0", *expression.split()][-6:][number]
        raise ValueError(
            f'cron="{text}": its {fact} "{field}" cannot be read; give {CRON_FIELDS.get(fact, "five fields")}'
        ) from None
    except (AssertionError, TypeError, ValueError):
        raise ValueError(f'cron="{text}": cannot be read') from None


def _ticks_in_any_month(expression: str) -> bool:
    *before, day, _, weekday = expression.split()
    try:
        return bool(CronSim(" ".join([*before, day, "*", weekday]), _LOCAL_EPOCH))
    except CronSimError:
        return False


@cache
def zone_of(name: str) -> ZoneInfo:
    """The zone with this name. Raises ValueError if there is no such zone."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        # ZoneInfoNotFoundError, a directory, or a path that leads elsewhere.
        raise ValueError(
            f'tz={json.dumps(name)}: there is no such time zone; use an IANA name such as "Europe/Berlin"'
        ) from None


def in_zone(ms: int, name: str) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone(zone_of(name))


def _seconds(local: datetime) -> int:
    return int((local - _LOCAL_EPOCH).total_seconds())
