"""The checker: reads the histories of a campaign when it is over, and says whether every promise was kept.

It knows nothing but what the processes wrote down, the answers of the servers after everything was worked off (`Found`), and
what was to become of each job (job_plan.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

from campaign_app import BELL, BELLS, PARTITIONS, SAME, WORK
from history import DEAD, DONE, Batch, acks_in, batches_in, runs_in, words_in
from job_plan import plan_of
from key_order import Judge, Stay
from loads.transfers import Books
from silence import Moments, silences

from qbull.core.route import digest, partition_of

SECOND = 1_000_000_000
SPLIT = 5 * SECOND
"""A primary that was replaced may take itself for one so much longer."""
HEARD = SECOND
"""A sentinel that is asked for the primary may hear of another one so much later than a worker that asked another sentinel."""


@dataclass
class Found:
    """What the servers said when all was over."""

    unfinished: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Ids of the dead letters of "work"."""
    crashed: list[str] = field(default_factory=list)
    """Those that were dead letters at some time because their workers died."""
    completed: dict[str, int] = field(default_factory=dict)
    """Totals by queue."""
    until: int = 0
    """The last second of which every tick must be there."""
    audit: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    money: Books | None = None
    replicated: bool = False
    """Servers take over from each other here, so that news of what was done may be lost."""


@dataclass
class Verdict:
    acknowledged: int = 0
    unknown: int = 0
    """Jobs in calls that ended without an answer that settles it; each was sent again until it was acknowledged."""
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    """Run, but never sent."""
    early: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    again: int = 0
    ahead_ms: float = 0.0
    ticks: int = 0
    missed: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    same: int = 0
    twice: list[str] = field(default_factory=list)
    """Ids of which two producers were told that theirs was the new one."""
    letters: int = 0
    books: list[str] = field(default_factory=list)
    """Where the servers' own counts say something else."""
    recovery: dict[str, list[float]] = field(default_factory=dict)
    stall: float = 0.0
    unavailable: float = 0.0
    longest_wait: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    found: Found = field(default_factory=Found)

    def broken(self) -> list[str]:
        """Every promise that was not kept, with an example."""
        wrong = {
            "lost": self.lost, "run but never sent": self.strange, "begun too early": self.early,
            "order": self.disorder, "ticks missed": self.missed, "ticks doubled": self.doubled,
            "ids added twice": self.twice, "books": self.books, "audit": self.found.audit, "leaked names": self.found.leaked,
            "not worked off": [f"{queue}: {n}" for queue, n in self.found.unfinished.items() if n],
            "money": self.found.money.faults if self.found.money else [],
        }  # fmt: skip
        return [f"{word}: {len(some)}, such as {some[:3]}" for word, some in wrong.items() if some]


class Checker:
    """`replicated`: servers take over from each other here, so that news of what was done may be lost."""

    def __init__(self, directory: Path, found: Found, *, replicated: bool) -> None:
        self._directory = directory
        self._found = found
        self._replicated = replicated
        self._words = words_in(directory / "faults.words")
        self.verdict = Verdict(found=found)

    def check(self) -> Verdict:
        numbers, later = self._sent()
        events = self._runs()
        self._judge(events, numbers, later)
        self._ticks()
        self._same_ids()
        self._letters()
        self._calm()
        return self.verdict

    def _sent(self) -> tuple[dict[int, list[int]], dict[int, Batch]]:
        """Of each key how many of its jobs were acknowledged, and how many were sent; of those for later, their batches."""
        verdict = self.verdict
        numbers: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        later: dict[int, Batch] = {}
        waits: list[tuple[int, int]] = []
        for path in self._directory.glob("*.sent"):
            acks = {ack.number: ack for ack in acks_in(path.with_suffix(".acks"))}
            for batch in batches_in(path):
                ack = acks.get(batch.number)
                if batch.delay_ms:
                    later |= dict.fromkeys(batch.keys, batch)
                for key, many in Counter(batch.keys).items():
                    numbers[key][1] += many
                    if ack:
                        numbers[key][0] += many
                if ack:
                    verdict.acknowledged += len(batch.keys)
                    waits.append((ack.began, ack.at))
        for path in self._directory.glob("sender-*.words"):
            for word in words_in(path):
                if word.get("error") == "ServerRefused":
                    verdict.refused += word["jobs"]
                elif "error" in word:
                    verdict.unknown += word["jobs"]
        verdict.longest_wait = max((end - began for began, end in waits), default=0) / SECOND
        verdict.unavailable = _union([wait for wait in waits if wait[1] - wait[0] > SECOND]) / SECOND
        self._load = min((began for began, _ in waits), default=0), max((end for _, end in waits), default=0)
        return numbers, later

    def _runs(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """The events of each key of "work", in the order of time. Those of the others are put aside."""
        events: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        self._rung: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._done_same: set[int] = set()
        self._signs: dict[int, int] = {}
        for path in self._directory.glob("*.runs"):
            process = int(path.name.partition("-")[0])
            for kind, _, source, key, number, at in runs_in(path):
                self._signs.setdefault(process, at)
                if source == WORK:
                    events[key].append((at, process, kind, number))
                elif source == BELL:
                    self._rung[key & 0xFF, number].add(key >> 8)
                elif source == SAME and kind == DONE:
                    self._done_same.add(number)
        for some in events.values():
            some.sort()
        return events

    def _judge(
        self,
        events: dict[int, list[tuple[int, int, int, int]]],
        numbers: dict[int, list[int]],
        later: dict[int, Batch],
    ) -> None:
        verdict, found = self.verdict, self._found
        crashed = {(int(key), int(n)) for key, _, n in (id.partition(":") for id in found.crashed)}
        judge = Judge(self._deaths(), self._silent(), self._moved, crashed)
        letters = set(found.failed)
        self._done: dict[int, list[int]] = defaultdict(list)
        self._stays: dict[int, list[Stay]] = {}
        self._effects = self._dead = 0
        for key, (acknowledged, sent) in numbers.items():
            stays = self._stays[key] = judge.look_at(key, events.pop(key, []))
            verdict.runs += len(stays)
            done = {stay.number for stay in stays if stay.how == DONE}
            self._effects += len(done)
            self._done[_partition(key)] += [stay.ended or 0 for stay in stays if stay.how == DONE]
            for n in range(acknowledged):
                if n not in done and f"{key}:{n}" not in letters:
                    verdict.lost.append(f"{key}:{n}")
            verdict.strange += [f"{key}:{stay.number}" for stay in stays if stay.number >= sent]
            batch = later.get(key)
            if batch is not None and stays and stays[0].begun < batch.at + batch.delay_ms * 1_000_000:
                verdict.early.append(
                    f"{key}: due after {batch.delay_ms} ms, begun after {(stays[0].begun - batch.at) // 1_000_000}"
                )
        verdict.strange += [f"{key}" for key in events]
        verdict.disorder = judge.faults
        verdict.excused, verdict.again, verdict.ahead_ms = judge.excused, judge.again, judge.ahead / 1e6
        for times in self._done.values():
            times.sort()

    def _ticks(self) -> None:
        verdict, found = self.verdict, self._found
        if not self._rung:
            return
        firsts = {bell: min(at for b, at in self._rung if b == bell) for bell in {b for b, _ in self._rung}}
        since = max(firsts.values())
        ticks = [(bell, at) for bell in range(BELLS) for at in range(since, found.until + 1)]
        verdict.ticks = len(ticks)
        verdict.missed = [f"bell {bell} at {at}" for bell, at in ticks if (bell, at) not in self._rung]
        verdict.doubled = [
            f"bell {tick[0]} at {tick[1]}" for tick, jobs in self._rung.items() if len(jobs) > 1
        ]

    def _same_ids(self) -> None:
        verdict = self.verdict
        new: Counter[int] = Counter()
        acknowledged: set[int] = set()
        for path in self._directory.glob("sender-*.words"):
            for word in words_in(path):
                for number, created in zip(word.get("same", ()), word.get("new", ()), strict=True):
                    acknowledged.add(number)
                    new[number] += created
        verdict.same = len(acknowledged)
        verdict.lost += [f"same-{number}" for number in acknowledged - self._done_same]
        if not self._replicated:
            verdict.twice = [f"same-{number}" for number, many in new.items() if many > 1]

    def _letters(self) -> None:
        """The dead letters are exactly those that never succeed; on a server that nobody takes over from, all counts are exact."""
        verdict, found = self.verdict, self._found
        never = {
            f"{key}:{stay.number}"
            for key, stays in self._stays.items()
            for stay in stays
            if stay.how == DEAD and plan_of(key, stay.number).letter == "never"
        }
        verdict.letters = sum(stay.how == DEAD for stays in self._stays.values() for stay in stays)
        failed = Counter(found.failed)
        verdict.books += [f"dead letter {id} is missing" for id in never - failed.keys()]
        verdict.books += [f"{id} is a dead letter without a reason" for id in failed.keys() - never]
        verdict.books += [
            f"dead letter {id} is there {many} times" for id, many in failed.items() if many > 1
        ]
        if self._replicated:
            return
        for queue, exact in {
            "work": self._effects,
            "same": len(self._done_same),
            "bells": len(self._rung),
        }.items():
            if queue in found.completed and found.completed[queue] != exact:
                verdict.books.append(f'queue "{queue}": {found.completed[queue]} completed, {exact} done')

    def _calm(self) -> None:
        """How long things took."""
        verdict = self.verdict
        every = sorted(
            at for times in self._done.values() for at in times if self._load[0] <= at <= self._load[1]
        )
        verdict.stall = max((b - a for a, b in pairwise(every)), default=0) / SECOND
        for word in self._words:
            if "kind" not in word or "missed" in word:
                continue
            verdict.faults[word["kind"]] += 1
            took = self._resumed_at(word)
            if took is not None:
                verdict.recovery.setdefault(word["kind"], []).append(took)

    def _resumed_at(self, word: dict[str, Any]) -> float | None:
        """Seconds from the end of a fault until every partition that it concerned had done another job."""
        since = word.get("at_ns") or word["ended"]
        took = []
        for partition in self._of(word.get("server", 0), word["began"]):
            times = self._done[partition]
            at = bisect_left(times, since)
            if at < len(times) and since < self._load[1]:
                took.append((times[at] - since) / SECOND)
        return max(took, default=None)

    def _of(self, server: int, at: int) -> list[int]:
        """The partitions that a server had then; all, where it is no primary's."""
        owners = [word["owners"] for word in self._words if "owners" in word and word["since"] <= at]
        latest = owners[-1] if owners else []
        return [p for p, port in enumerate(latest) if port == server] or list(range(PARTITIONS))

    def _deaths(self) -> dict[int, int]:
        return {pid: word["at_ns"] for word in self._words for pid in word.get("pids", ())}

    def _silent(self) -> dict[int, Moments]:
        """When processes were taken for dead, as the workers' own logs say."""
        logs = (path.read_text(errors="replace") for path in self._directory.glob("pod-*.out"))
        return silences(logs, self._deaths(), self._signs, self._words)

    def _moved(self, key: int, since: int, until: int) -> bool:
        partition = _partition(key)
        return any(
            before["owners"][partition] != after["owners"][partition]
            and after["before"] - HEARD < until
            and after["since"] + SPLIT > since
            for before, after in self._changes()
        )

    def _changes(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """What was seen of the owners of partitions before and after each change."""
        if not hasattr(self, "_seen"):
            looks = [word for word in self._words if "owners" in word]
            self._seen = list(pairwise(looks))
        return self._seen


def _partition(key: int) -> int:
    return partition_of(digest(str(key)), PARTITIONS)


def _union(intervals: list[tuple[int, int]]) -> int:
    total = end = 0
    for began, ended in sorted(intervals):
        total += max(0, ended - max(began, end))
        end = max(end, ended)
    return total


def spread(values: list[float]) -> tuple[float, float, float]:
    """The median, the 99th of a hundred, the longest."""
    if len(values) < 2:
        one = values[0] if values else 0.0
        return one, one, one
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98], max(values)
