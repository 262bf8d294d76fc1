"""Order: whether the runs of one key were what is promised (docs/guides/guarantees.md), no more and no less.

1. A job begins for the first time only after the one before it has ended for good: done, or a dead letter. In a queue that
   halts, a dead letter ends nothing.
2. No two runs of a key overlap.
3. No job is run again after a later one. With "fast" it may be, where its outcome did not reach the server: its process died,
   and it was a quick job that ended within the last moments of that. The ones behind it whose outcome was lost are then run
   again in their order.

A worker that was frozen or cut off so long that it was taken for dead excuses 2 and 3, for what was under way then. A failover excuses 2,
for what was under way then: the new primary may not know that a job was handed out. Nothing excuses 1. The excuses are counted and bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from circumstances import WAKING, Circumstances
from history import BEGUN, DEAD, DONE, FAILED, LEFT

MS = 1_000_000
QUICK = 2 * MS
BEHIND = 50 * MS
"""What docs/guides/guarantees.md says: how far quick jobs run ahead of what is written down."""
SLACK = 250 * MS
"""A process may be kept waiting by others between its look at the clock and what it writes into its history."""


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
    """`crashed`: jobs that are dead letters because their workers died; `partition`: which partition of "work" a key has;
    `halts`: whether a dead letter stops its key; `outcomes_may_be_lost`: whether a failover may lose outcomes, as with "fast"."""

    circumstances: Circumstances
    crashed: Container[tuple[Any, int]] = ()
    partition: Callable[[Any], int | None] = lambda key: None
    halts: bool = False
    outcomes_may_be_lost: bool = False
    faults: list[str] = field(default_factory=list)
    again: int = 0
    """Jobs that were run again although they had had their effect."""
    excused: Counter[str] = field(default_factory=Counter)
    ahead: int = 0
    """The longest time for which an outcome was lost with its process, in nanoseconds."""

    def look_at(self, key: Any, events: Iterable[tuple[int, int, int, int]]) -> list[Stay]:
        """Events are (when, process, kind, number), in the order of time."""
        stays = self._stays(key, events)
        final = (DONE,) if self.halts else (DONE, DEAD)
        ends: dict[int, int] = {}
        for stay in stays:
            if stay.how in final and stay.ended is not None:
                ends[stay.number] = min(stay.ended, ends.get(stay.number, stay.ended))
        letters = {} if self.halts else {s.number: s.ended for s in reversed(stays) if s.how == DEAD}
        self._in_order(key, stays, ends, letters)
        self._apart(key, stays)
        return stays

    def _in_order(
        self, key: Any, stays: list[Stay], ends: Mapping[int, int], letters: Mapping[int, int | None]
    ) -> None:
        crashed = () if self.halts else self.crashed
        seen: dict[int, Stay] = {}
        highest = last = -1
        for stay in stays:
            n = stay.number
            before = seen.get(n)
            seen[n] = stay
            if before is None:
                if (
                    n > 0
                    and (key, n - 1) not in crashed
                    and not ends.get(n - 1, stay.begun + 1) <= stay.begun
                ):
                    self.faults.append(f"key {key}: {n} began before {n - 1} had ended")
            elif before.how == DONE:
                self.again += 1
            if (letters.get(n) or stay.begun) < stay.begun or (before is not None and (key, n) in crashed):
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
                ends.get(m, stay.begun + 1) <= stay.begun or m in letters or (key, m) in crashed
                for m in range(last + 1, n)
            ):
                self.faults.append(f"key {key}: {n} came after {last}")
            highest, last = max(highest, n), n

    def _excuse(self, key: Any, stay: Stay, before: Stay | None, stays: list[Stay]) -> str | None:
        """Why a job may run again although a later one has begun."""
        taken_over = self.circumstances.was_taken_over
        if before is not None:
            if self._was_killed(before, stay, stays):
                return "killed"
            unheard = stay.begun if before.ended is None else min(stay.begun, before.ended + WAKING)
            if taken_over(before.process, before.begun, unheard):
                return "taken over"
            if self.outcomes_may_be_lost and self._moved(key, before.ended or before.begun, stay.begun):
                return "failover"
        return "zombie" if taken_over(stay.process, stay.begun, stay.begun) else None

    def _moved(self, key: Any, since: int, until: int) -> bool:
        return self.circumstances.failed_over(since, until, self.partition(key))

    def _was_killed(self, before: Stay, stay: Stay, stays: list[Stay]) -> bool:
        """Its outcome was lost with its process: it was quick, and ended within the last moments."""
        if not self.circumstances.runs_ahead:
            return False
        if before.process not in self.circumstances.deaths or before.ended is None:
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

    def _apart(self, key: Any, stays: list[Stay]) -> None:
        taken_over = self.circumstances.was_taken_over
        open_runs: list[Stay] = []
        for stay in stays:
            still = []
            for other in open_runs:
                end = other.ended if other.ended is not None else self.circumstances.deaths.get(other.process)
                if end is not None and end <= stay.begun:
                    continue
                if other.process == stay.process and other.number == stay.number:
                    self.faults.append(
                        f"key {key}: {stay.number} ran twice at once in process {stay.process}"
                    )
                elif taken_over(other.process, other.begun, stay.begun) or taken_over(
                    stay.process, stay.begun, stay.begun
                ):
                    self.excused["overlap, taken over"] += 1
                elif self._moved(key, other.begun, stay.begun):
                    self.excused["overlap, failover"] += 1
                else:
                    self.faults.append(
                        f"key {key}: {stay.number} began in {stay.process} while {other.number} ran in {other.process}"
                    )
                if other.ended is not None:
                    still.append(other)
            still.append(stay)
            open_runs = still

    def _stays(self, key: Any, events: Iterable[tuple[int, int, int, int]]) -> list[Stay]:
        stays: list[Stay] = []
        open_runs: dict[tuple[int, int], Stay] = {}
        for at, process, kind, number in events:
            if kind == BEGUN:
                stay = Stay(number, at, process)
                stays.append(stay)
                open_runs[process, number] = stay
            elif kind in (DONE, FAILED, DEAD, LEFT):
                ended = open_runs.pop((process, number), None)
                if ended is not None:
                    ended.ended, ended.how = at, kind
        return stays
