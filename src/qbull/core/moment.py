"""Times and durations as people type them: `yesterday`, `2030-01-31`, `2h`."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta, tzinfo

from qbull.errors import MAX_DELAY_SECONDS

SECONDS_OF_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhdw]?)", re.ASCII)
MOMENT_EXAMPLES = "2030-01-31T12:00:00Z, 2030-01-31, yesterday or 2h (two hours ago)"
COMING_MOMENT_EXAMPLES = "2030-01-31T12:00:00Z, 2030-01-31, tomorrow or 2h (in two hours)"
DAYS_FROM_TODAY = {"yesterday": -1, "today": 0, "tomorrow": 1}


def parse_duration(text: str) -> float:
    """Seconds from a number with a unit: `90`, `90s`, `15m`, `2h`, `7d`, `2w`.

    Raises ValueError for anything else.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is not a duration; write it like 90s, 15m, 2h or 7d')
    number, unit = match.groups()
    seconds = float(number) * SECONDS_OF_UNIT[unit or "s"]
    if not math.isfinite(seconds) or seconds > MAX_DELAY_SECONDS:
        raise ValueError(f'"{text}" is longer than ten years')
    return seconds


def parse_moment(text: str, now: datetime, zone: tzinfo | None, *, is_coming: bool = False) -> datetime:
    """A time: with its zone, as a date or a day, or as a duration before now, or after it.

    Raises ValueError for anything else.

    Args:
        text: the time as it was typed.
        now: the current time, with its zone.
        zone: the zone of dates and days; None for that of this machine.
        is_coming: whether a duration counts from now on instead of back.
    """
    word = text.strip().lower()
    if word == "now":
        return now
    if word in DAYS_FROM_TODAY:
        return _midnight(now.astimezone(zone).date() + timedelta(days=DAYS_FROM_TODAY[word]), zone)
    if word and word[-1] in SECONDS_OF_UNIT and _DURATION.fullmatch(word):
        span = timedelta(seconds=parse_duration(word))
        return now + span if is_coming else now - span
    try:
        return _midnight(date.fromisoformat(text.strip()), zone)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        examples = COMING_MOMENT_EXAMPLES if is_coming else MOMENT_EXAMPLES
        raise ValueError(f'"{text}" is not a time; write it like {examples}') from None
    if at.utcoffset() is None:
        raise ValueError(f'"{text}" has no time zone; write it like 2030-01-31T12:00:00Z')
    return at


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    """The start of a day. A machine's own zone may have another offset on that day than now."""
    start = datetime.combine(day, time())
    return start.astimezone() if zone is None else start.replace(tzinfo=zone)
