"""A schedule: its definition, its planned instants, and the ticks that it proposes.

Everything here is pure. Workers compute and propose; the server's script (store/lua/tick.lua) decides by its
own clock whether an instant is due and has not been fired yet. So any number of workers may compute the same
ticks at once.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from qbull.core.cron import Calendar, Cron, Interval

CatchUp = Literal["skip", "one", "all"]
Overlap = Literal["skip", "allow"]

MISSED_AFTER_MS = 60_000
"""A tick that is later than this was missed. It is longer than others take to replace a dead worker."""
OVERLAP_RECHECK_MS = 200
"""The wait for the job of the tick before, with catch_up="all" and overlap="skip"."""
MAX_CAUGHT_UP_TICKS = 1000
_TICK_BATCH_SIZE = 100


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule. Other versions read it too: add fields at the end, with a default."""

    name: str
    queue: str
    task: str
    cron: str | None = None
    every_ms: int | None = None
    tz: str = "UTC"
    args: msgspec.Raw = msgspec.Raw(b"{}")
    key: str | None = None
    catch_up: CatchUp = "skip"
    overlap: Overlap = "skip"
    catch_up_limit: int = MAX_CAUGHT_UP_TICKS
    jitter_ms: int = 0
    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def timing(self) -> tuple[str | None, int | None, str, int | None, int | None]:
        """The fields that decide when it ticks. While they stay the same, so does its plan."""
        return self.cron, self.every_ms, self.tz, self.start_ms, self.end_ms

    def after(self, ms: int) -> int | None:
        """The first planned instant after this one; None if the schedule has ended."""
        if self.start_ms is not None:
            ms = max(ms, self.start_ms - 1)
        planned = _calendar(self.cron, self.every_ms, self.tz, self.start_ms).after(ms)
        return None if planned is None or (self.end_ms is not None and planned > self.end_ms) else planned

    def ticks(self, after: int) -> Iterator[int]:
        planned = self.after(after)
        while planned is not None:
            yield planned
            planned = self.after(planned)

    def due(self, planned: int) -> int:
        """When a planned instant is fired. The jitter is the same for everybody who computes it."""
        if not self.jitter_ms:
            return planned
        noise = hashlib.sha256(self.tick_id(planned).encode()).digest()
        return planned + int.from_bytes(noise[:8], "big") % (self.jitter_ms + 1)

    def tick_id(self, planned: int) -> str:
        """The id of a tick's job: the schedule and the planned instant, the same wherever it is computed."""
        at = datetime.fromtimestamp(planned // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self.name}@{at}{f'.{planned % 1000:03d}' if planned % 1000 else ''}Z"


def protected_value(schedule: Schedule) -> bytes | None:
    """The protected schedule in place of the arguments (codecs/schedules.py); None if there is none."""
    text = bytes(schedule.args)
    if not text.startswith(b'"'):
        return None
    try:
        return base64.b64decode(text[1:-1], validate=True)
    except ValueError:
        return b""


@lru_cache(maxsize=10_000)
def _calendar(cron: str | None, every_ms: int | None, tz: str, start_ms: int | None) -> Calendar:
    return Cron(cron, tz) if cron is not None else Interval(every_ms or 1000, start_ms or 0)


def version_of(schedules: Iterable[Schedule]) -> str:
    """A name for the schedules that a program declares for a queue: the same code has the same name."""
    packed = sorted(msgspec.json.encode(schedule) for schedule in schedules)
    return hashlib.sha256(b"\n".join(packed)).hexdigest()[:16]


class TickProposal(NamedTuple):
    """Planned instants that may be due, the oldest first, and the next one.

    `missed` counts those left out.
    """

    instants: list[int]
    following: int | None
    missed: int = 0


def propose_ticks(schedule: Schedule, next_ms: int, now_ms: int) -> TickProposal:
    """The ticks to fire, given the next planned instant and the server's time."""
    most = schedule.catch_up_limit if schedule.catch_up == "all" else 3
    ticks, left_out = _latest(schedule, next_ms, now_ms, most)
    if len(ticks) > _TICK_BATCH_SIZE:
        return TickProposal(ticks[:_TICK_BATCH_SIZE], ticks[_TICK_BATCH_SIZE], left_out)
    return TickProposal(ticks, schedule.after(max(now_ms, next_ms)), left_out)


def _latest(schedule: Schedule, first: int, now_ms: int, most: int) -> tuple[list[int], int]:
    """The latest `most` ticks from `first` up to now, and the number of ticks before them, up to 1,000."""
    ticks = [first]
    for planned in schedule.ticks(first):
        if planned > now_ms or len(ticks) > MAX_CAUGHT_UP_TICKS:
            break
        ticks.append(planned)
    if len(ticks) <= MAX_CAUGHT_UP_TICKS:
        return ticks[-most:], max(len(ticks) - most, 0)
    span = (ticks[-1] - first) * 2
    while True:  # Too many to count: search back from now, further each time.
        since = max(now_ms - span, first)
        found = deque(
            itertools.takewhile(lambda planned: planned <= now_ms, schedule.ticks(since)), maxlen=most
        )
        if len(found) >= most or since == first:
            return list(found), MAX_CAUGHT_UP_TICKS
        span *= 4
