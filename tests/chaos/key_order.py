"""Order: whether the runs of one key were what is promised (docs/guides/guarantees.md), no more and no less.

1. A job begins for the first time only after the one before it has ended for good: done, or a dead letter.
2. No two runs of a key overlap.
3. A job is run again after a later one only where its outcome did not reach the server: its process died, and it was a quick
   job that ended within the last moments of that. The ones behind it whose outcome was lost are then run again in their order.

A worker that was wrongly taken for dead, and news that a failover has lost, excuse 2 and 3. Nothing excuses 1. The first does so for what was
under way when it was taken for dead, not for the rest of its life.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from history import BEGUN, DEAD, DONE, FAILED
from silence import Moments

MS = 1_000_000
QUICK = 2 * MS
BEHIND = 50 * MS
"""What docs/guides/guarantees.md says: how far quick jobs run ahead of what is written down."""
SLACK = 250 * MS
"""A process may be kept waiting by others between its look at the clock and what it writes into its history."""


WAKING = 30_000 * MS
"""A worker that was taken for dead has learned of it by then, and what it had done before that was on the server, or never gets there: those
that are frozen are so for 5 s at most, and servers that are away come back."""


@dataclass(slots=True)
class Stay:
    """One run of one job, in one process."""

    number: int
    begun: int
    process: int
    ended: int | None = None
    how: int = 0


@dataclass
class Judge:
    """`deaths`: process → when it was killed; `silent`: process → when it was taken for dead; `moved`: whether the partition of a key had
    another primary at some time between two moments; `crashed`: jobs that are dead letters because their workers died."""

    deaths: Mapping[int, int]
    silent: Mapping[int, Moments]
    moved: Callable[[int, int, int], bool]
    crashed: Container[tuple[int, int]]
    faults: list[str] = field(default_factory=list)
    again: int = 0
    """Jobs that were run again although they had had their effect."""
    excused: Counter[str] = field(default_factory=Counter)
    ahead: int = 0
    """The longest time for which an outcome was lost with its process, in nanoseconds."""

    def look_at(self, key: int, events: Iterable[tuple[int, int, int, int]]) -> list[Stay]:
        """Events are (when, process, kind, number), in the order of time."""
        stays = _stays(events)
        ends: dict[int, int] = {}
        for stay in stays:
            if stay.how in (DONE, DEAD) and stay.ended is not None:
                ends[stay.number] = min(stay.ended, ends.get(stay.number, stay.ended))
        letters = {stay.number: stay.ended for stay in reversed(stays) if stay.how == DEAD}
        self._in_order(key, stays, ends, letters)
        self._apart(key, stays)
        return stays

    def _in_order(
        self, key: int, stays: list[Stay], ends: Mapping[int, int], letters: Mapping[int, int | None]
    ) -> None:
        seen: dict[int, Stay] = {}
        highest = last = -1
        for stay in stays:
            n = stay.number
            before = seen.get(n)
            seen[n] = stay
            if before is None:
                if (
                    n > 0
                    and (key, n - 1) not in self.crashed
                    and not ends.get(n - 1, stay.begun + 1) <= stay.begun
                ):
                    self.faults.append(f"key {key}: {n} began before {n - 1} had ended")
            elif before.how == DONE:
                self.again += 1
            if (letters.get(n) or stay.begun) < stay.begun or (
                before is not None and (key, n) in self.crashed
            ):
                continue  # a dead letter that was redriven has no place in the line
            if n < highest and n != last:  # the next attempt of the one that runs again is in its place
                excuse = self._excuse(key, stay, before, stays)
                if excuse is None:
                    self.faults.append(f"key {key}: {n} ran again after {highest}")
                else:
                    self.excused[excuse] += 1
                if excuse == "zombie":
                    continue  # what it does has no place in the line, either
            elif n > last + 1 and not all(
                ends.get(m, stay.begun + 1) <= stay.begun or m in letters or (key, m) in self.crashed
                for m in range(last + 1, n)
            ):
                self.faults.append(f"key {key}: {n} came after {last}")
            highest, last = max(highest, n), n

    def _excuse(self, key: int, stay: Stay, before: Stay | None, stays: list[Stay]) -> str | None:
        """Why a job may run again although a later one has begun."""
        if before is not None:
            if self.moved(key, before.ended or before.begun, stay.begun):
                return "failover"
            if self._was_killed(before, stay, stays):
                return "killed"
            unheard = stay.begun if before.ended is None else min(stay.begun, before.ended + WAKING)
            if self._was_taken_for_dead(before.process, before.begun - WAKING, unheard):
                return "taken over"
        return "zombie" if self._was_taken_for_dead(stay.process, stay.begun - WAKING, stay.begun) else None

    def _was_taken_for_dead(self, process: int, since: int, until: int) -> bool:
        return any(low <= until and high >= since for low, high in self.silent.get(process, ()))

    def _was_killed(self, before: Stay, stay: Stay, stays: list[Stay]) -> bool:
        """Its outcome was lost with its process: it was quick, and ended within the last moments."""
        if before.process not in self.deaths or before.ended is None:
            return False
        later = [
            other.begun
            for other in stays
            if other.process == before.process and before.ended <= other.begun < stay.begun
        ]
        ahead = max(later, default=before.ended) - before.ended
        if before.ended - before.begun > QUICK or ahead > BEHIND + SLACK:
            return False
        self.ahead = max(self.ahead, ahead)
        return True

    def _apart(self, key: int, stays: list[Stay]) -> None:
        open_runs: list[Stay] = []
        for stay in stays:
            still = []
            for other in open_runs:
                end = other.ended if other.ended is not None else self.deaths.get(other.process)
                if end is not None and end <= stay.begun:
                    continue
                if end is None and other.process == stay.process and other.number == stay.number:
                    continue
                if self._was_taken_for_dead(
                    other.process, other.begun - WAKING, stay.begun
                ) or self._was_taken_for_dead(stay.process, stay.begun - WAKING, stay.begun):
                    self.excused["overlap, taken over"] += 1
                elif self.moved(key, other.begun, stay.begun):
                    self.excused["overlap, failover"] += 1
                else:
                    self.faults.append(
                        f"key {key}: {stay.number} began in {stay.process} while {other.number} ran in {other.process}"
                    )
                if other.ended is not None:
                    still.append(other)
            still.append(stay)
            open_runs = still


def _stays(events: Iterable[tuple[int, int, int, int]]) -> list[Stay]:
    stays: list[Stay] = []
    open_runs: dict[tuple[int, int], Stay] = {}
    for at, process, kind, number in events:
        if kind == BEGUN:
            stay = Stay(number, at, process)
            stays.append(stay)
            open_runs[process, number] = stay
        elif kind in (DONE, FAILED, DEAD):
            ended = open_runs.pop((process, number), None)
            if ended is not None:
                ended.ended, ended.how = at, kind
    return stays
