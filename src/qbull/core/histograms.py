"""Histograms of how long jobs waited and ran, in buckets of up to 1, 2, 4, 8 … microseconds.

A worker counts in memory and stores the difference now and then, so that no job costs a call. Buckets that
double need no search: the length of a number in bits is its bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from qbull.core.digits import whole_number

SUM_INDEX = 64
"""The place of the sum in a row, in microseconds. Before it: one count for each length in bits."""
MAX_ROW_COUNTS = SUM_INDEX + 1
"""A row of a worker has the durations of a task first, then its waits."""
STARTED_FIELD = "s:jobs"
SCRIPT_ERRORS_FIELD = "e:scripts"
SHOWN_BUCKETS = range(7, 37)
"""The buckets that are shown: from 128 microseconds to 19 hours; the first and the last include the rest."""

HistogramRow = list[int]


def new_row() -> HistogramRow:
    return [0] * (2 * MAX_ROW_COUNTS)


class Histograms:
    """The histograms of one queue in one worker.

    `origin` is what the server's clock says at 0 of this process's steady clock, in seconds.
    """

    __slots__ = ("origin", "started", "tasks")

    def __init__(self) -> None:
        self.started = 0
        self.tasks: dict[str, HistogramRow] = {}
        self.origin = 0.0

    def ended(self, task: str, began: float, ended: float, ready_ms: int) -> None:
        """Count a run: when it started, when it ended, and since when the job was runnable."""
        try:
            of_task = self.tasks[task]
        except KeyError:
            of_task = self.tasks[task] = new_row()
        us = int((ended - began) * 1e6)
        of_task[us.bit_length()] += 1
        of_task[64] += us  # Literals for the places: names would be looked up for each job.
        if self.origin:
            us = int((began + self.origin) * 1e6) - ready_ms * 1000
            if us < 0:
                us = 0
            of_task[65 + us.bit_length()] += 1
            of_task[129] += us

    def take(self) -> dict[str, int]:
        """Return the counts since the last call, by name, and start again from zero.

        `d` are durations of a task, `v` its waits, `w` the waits of all tasks.
        """
        started, tasks = self.started, self.tasks
        self.started, self.tasks = 0, {}
        taken = {STARTED_FIELD: started} if started else {}
        waits = [0] * MAX_ROW_COUNTS
        for task, row in tasks.items():
            taken |= {f"d:{at}:{task}": n for at, n in enumerate(row[:MAX_ROW_COUNTS]) if n}
            for at, n in enumerate(row[MAX_ROW_COUNTS:]):
                if n:
                    waits[at] += n
                    if at != SUM_INDEX:
                        taken[f"v:{at}:{task}"] = n
        return taken | {f"w:{at}": n for at, n in enumerate(waits) if n}


class Histogram:
    """A row as it is shown: cumulative counts by upper bound in seconds, and the sum."""

    def __init__(self, counted: Mapping[int, int]) -> None:
        self._counted = counted
        self.count = sum(n for at, n in counted.items() if at != SUM_INDEX)
        self.sum = counted.get(SUM_INDEX, 0) / 1e6

    @classmethod
    def together(cls, some: Iterable[Histogram]) -> Histogram:
        counted: Counter[int] = Counter()
        for one in some:
            counted.update(one._counted)
        return cls(counted)

    def quantile_ms(self, part: float) -> float:
        """The quantile `part` in milliseconds, interpolated in its bucket; 0 without counts."""
        return quantile({at: n for at, n in self._counted.items() if at != SUM_INDEX}, part) or 0.0

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Upper bound in seconds, and the number of durations up to it."""
        for last in SHOWN_BUCKETS:
            yield (1 << last) / 1e6, sum(n for at, n in self._counted.items() if at <= last)


def read(named: Mapping[str, int]) -> tuple[dict[str, Histogram], Histogram]:
    """The durations of each task and the waits, from the stored counts."""
    durations: dict[str, dict[int, int]] = {}
    waits: dict[int, int] = {}
    for name, n in named.items():
        kind, _, rest = name.partition(":")
        at, _, task = rest.partition(":")
        index = whole_number(at)
        if index is None or index > SUM_INDEX:
            continue
        if kind == "d":
            durations.setdefault(task, {})[index] = n
        elif kind == "w":
            waits[index] = n
    return {task: Histogram(counted) for task, counted in sorted(durations.items())}, Histogram(waits)


def quantile(counted: Mapping[int, int], part: float) -> float | None:
    """The quantile `part` of times in milliseconds, interpolated in its bucket; None without counts."""
    left = part * sum(counted.values())
    if not left:
        return None
    for at in sorted(counted):
        if counted[at] >= left:
            low = 0 if at == 0 else 1 << (at - 1)
            return (low + ((1 << at) - low) * left / counted[at]) / 1000
        left -= counted[at]
    return (1 << max(counted)) / 1000
