"""A schedule rule: when and how a schedule runs, as users declare it, and the checks of that."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import TypedDict, TypeVar, get_args
from zoneinfo import ZoneInfo

import msgspec

from qbull.core.cron import MIN_INTERVAL_MS, zone_of
from qbull.core.schedule import MAX_CAUGHT_UP_TICKS, CatchUp, Overlap, Schedule
from qbull.errors import MAX_DELAY_SECONDS, DeclarationError

W = TypeVar("W", bound=str)

_SAMPLE_START_MS = 1_735_689_600_000
"""Any day, to measure the distance between ticks: the first of January 2025."""
FIRST_YEAR, LAST_YEAR = 1970, 9000


class ScheduleOptions(TypedDict, total=False):
    """The settings of a schedule. All durations are seconds."""

    every: float | None
    tz: str | ZoneInfo | None
    catch_up: CatchUp
    overlap: Overlap | None
    catch_up_limit: int
    jitter: float
    start: datetime | None
    end: datetime | None


class ScheduleRule(msgspec.Struct, frozen=True):
    """When and how a schedule runs, as given to `@queue.cron(…)` or `app.schedules.upsert(…)`.

    All durations are seconds.
    """

    cron: str | None = None
    every: float | None = None
    tz: str | ZoneInfo | None = None
    catch_up: CatchUp = "skip"
    overlap: Overlap | None = None
    catch_up_limit: int = MAX_CAUGHT_UP_TICKS
    jitter: float = 0.0
    start: datetime | None = None
    end: datetime | None = None

    def schedule(
        self, name: str, queue: str, task: str, args: bytes, key: str | None, default_tz: str
    ) -> Schedule:
        """The schedule that this rule makes of a task. Raises DeclarationError, with the reason."""
        try:
            made = Schedule(
                name=name,
                queue=queue,
                task=task,
                cron=self.cron,
                every_ms=self._every_ms(),
                tz=self._zone(default_tz),
                args=msgspec.Raw(args),
                key=key,
                catch_up=_one_of("catch_up", self.catch_up, get_args(CatchUp)),
                overlap=self._overlap(),
                catch_up_limit=self._limit(),
                jitter_ms=_milliseconds("jitter", self.jitter, least=0.0),
                start_ms=_moment("start", self.start),
                end_ms=_moment("end", self.end),
            )
            _refuse_inconsistent(made)
        except ValueError as error:
            raise DeclarationError(f'schedule "{name}": {error}') from None
        return made

    def _every_ms(self) -> int | None:
        if (self.cron is None) == (self.every is None):
            raise ValueError('give either a cron expression such as "0 9 * * *" or every=… seconds')
        return (
            None if self.every is None else _milliseconds("every", self.every, least=MIN_INTERVAL_MS / 1000)
        )

    def _zone(self, default: str) -> str:
        if isinstance(self.tz, ZoneInfo):
            return zone_of(self.tz.key or "").key
        return zone_of(default if self.tz is None else str(self.tz)).key

    def _overlap(self) -> Overlap:
        """With catch_up="all" ticks overlap unless the user decides otherwise."""
        if self.overlap is None:
            return "allow" if self.catch_up == "all" else "skip"
        return _one_of("overlap", self.overlap, get_args(Overlap))

    def _limit(self) -> int:
        limit = self.catch_up_limit
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_CAUGHT_UP_TICKS:
            raise ValueError(
                f"catch_up_limit={limit!r}: give a whole number from 1 to {MAX_CAUGHT_UP_TICKS:,}"
            )
        return limit


def _refuse_inconsistent(made: Schedule) -> None:
    if made.start_ms is not None and made.end_ms is not None and made.start_ms > made.end_ms:
        raise ValueError("it ends before it starts; give an end after its start")
    some = list(itertools.islice(made.ticks((made.start_ms or _SAMPLE_START_MS) - 1), 20))
    if not some and made.start_ms is not None:
        raise ValueError("it never ticks: there is no tick between its start and its end")
    gap = min((later - earlier for earlier, later in itertools.pairwise(some)), default=None)
    if gap is not None and made.jitter_ms >= gap:
        raise ValueError(
            f"jitter={made.jitter_ms / 1000:g}: must be shorter than the {gap / 1000:g} s between two ticks"
        )


def _one_of(what: str, value: W, words: tuple[W, ...]) -> W:
    if value not in words:
        raise ValueError(f"{what}={value!r}: use one of {', '.join(words)}")
    return value


def _milliseconds(what: str, seconds: float, least: float) -> int:
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not least <= seconds <= MAX_DELAY_SECONDS
    ):
        raise ValueError(f"{what}={seconds!r}: give seconds from {least:g}")
    return round(seconds * 1000)


def _moment(what: str, at: datetime | None) -> int | None:
    if at is None:
        return None
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise ValueError(f"{what}={at!r}: give a datetime with a time zone, for example datetime.now(UTC)")
    if not FIRST_YEAR <= at.year <= LAST_YEAR:  # its ticks are shown in any time zone
        raise ValueError(f"{what}={at.isoformat()}: give a year from {FIRST_YEAR} to {LAST_YEAR}")
    return int(at.timestamp() * 1000)
