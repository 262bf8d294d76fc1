"""Silence: when a worker was taken for dead, as the logs of the other workers say.

The times of day in a log may be wrong by an hour, for the nemesis turns clocks. So somebody listens to the logs while the campaign runs, with the
clock that all share. Where nobody has, a line is placed between its neighbours: it was written after the death of every process whose end is noted before it, and before the first sign of every process whose
start is noted behind it. Deaths and first signs are known by the monotonic clock.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from history import Book

STARTED = re.compile(r"worker (\S+) started, process (\d+)")
ENDED = re.compile(r"worker (\S+) ended with")
SILENT = re.compile(r"worker (\S+) (?:has fallen silent|is not in the registry)")
NEVER = 1 << 62

Moments = list[tuple[int, int]]
"""Each lies between the two."""


class Ears:
    """Listens to the logs while a campaign runs, and writes down when it heard that a worker was taken for dead."""

    def __init__(self, directory: Path, book: Book) -> None:
        self._directory = directory
        self._book = book
        self._read: dict[Path, int] = {}
        self._last = time.monotonic_ns()

    def listen(self) -> None:
        """What is new was written since the last time."""
        before, self._last = self._last, time.monotonic_ns()
        for path in self._directory.glob("pod-*.out"):
            with path.open("rb") as log:
                log.seek(self._read.get(path, 0))
                whole = log.read().rpartition(b"\n")[0]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for worker in SILENT.findall(whole.decode(errors="replace")):
                self._book.say(silent=worker, since=before, until=time.monotonic_ns())


def silences(
    logs: Iterable[str],
    deaths: Mapping[int, int],
    signs: Mapping[int, int],
    words: Iterable[Mapping[str, Any]] = (),
) -> dict[int, Moments]:
    """Of each process, when it was taken for dead. `deaths` and `signs`: process → when it was killed, and first heard of."""
    texts = [log.splitlines() for log in logs]
    processes = {
        worker: int(pid) for lines in texts for line in lines for worker, pid in STARTED.findall(line)
    }
    heard = [(word["silent"], word["since"], word["until"]) for word in words if "silent" in word]
    found: dict[int, Moments] = defaultdict(list)
    for worker, since, until in heard or _placed(texts, processes, deaths, signs):
        if worker in processes:
            found[processes[worker]].append((since, until))
    return dict(found)


def _placed(
    texts: list[list[str]], processes: Mapping[str, int], deaths: Mapping[int, int], signs: Mapping[int, int]
) -> Iterable[tuple[str, int, int]]:
    """For histories of campaigns that nobody has listened to."""
    for lines in texts:
        after = accumulate(_deaths_before(lines, processes, deaths), max)
        before = list(accumulate((_sign_of(line, signs) for line in reversed(lines)), min))[::-1]
        for line, since, until in zip(lines, after, before, strict=True):
            for worker in SILENT.findall(line):
                yield worker, since, until


def _deaths_before(
    lines: list[str], processes: Mapping[str, int], deaths: Mapping[int, int]
) -> Iterable[int]:
    """Of each line, a death that lies before it; 0 where it tells of none."""
    parent, children = "", set[int]()
    for line in lines:
        if (started := STARTED.search(line)) is not None:
            worker, pid = started[1], int(started[2])
            if (its := worker.rpartition("-")[0]) != parent:  # the pod before it is gone as a whole
                yield max((deaths.get(child, 0) for child in children), default=0)
                parent, children = its, {pid}
                continue
            children.add(pid)
        ended = ENDED.search(line)
        yield deaths.get(processes.get(ended[1], 0), 0) if ended is not None else 0


def _sign_of(line: str, signs: Mapping[int, int]) -> int:
    started = STARTED.search(line)
    return signs.get(int(started[2]), NEVER) if started is not None else NEVER
