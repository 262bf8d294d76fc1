"""The checker: reads the histories of a campaign when it is over, and says whether every promise was kept.

It judges the long sequences of "work" itself and asks each other kind of load for its own report. It knows nothing but what the
processes and the nemesis wrote down, the answers of the servers after everything was worked off (`Found`), and what was to become
of each job (job_plan.py). It reads no log of qbull.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

from circumstances import SECOND, Circumstances
from history import DEAD, DONE, Batch, acks_in, batches_in, runs_in, words_in
from job_plan import PARTITIONS, plan_of
from key_order import Judge, Stay
from loads import SMALL_LOADS, durable, same_ids, schedules
from loads.oracle import runs_of
from loads.record import Event, Report, events_in
from loads.transfers import Books

from qbull.core.route import digest, partition_of_digest

EXCUSES_EACH = 20
"""A killed process, a worker that was taken for dead and a failover excuse no more than so many runs each."""
EXACT = ("chunks", "cancels", "expiry", "rates", "capped", "priorities", "cpu", "halts", "deploys")
"""Small queues whose totals must be what was sent: they are not repartitioned, and each call is a job."""
OUT_OF_MEMORY_NS = 10 * SECOND
"""A call may be told that the server is out of memory so long after it was: it was sent again and again meanwhile."""
LAST_MOMENTS_NS = SECOND


@dataclass
class Found:
    """What the servers said when all was over."""

    unfinished: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    """Why some of them have not run."""
    failed: list[str] = field(default_factory=list)
    """Ids of the dead letters of "work"."""
    crashed: list[str] = field(default_factory=list)
    """Those that were dead letters at some time because their workers died."""
    completed: dict[str, int] = field(default_factory=dict)
    """Totals by queue."""
    ended: dict[str, int] = field(default_factory=dict)
    """Jobs that have ended, by queue: completed, cancelled, dead letters."""
    until: int = 0
    """The last second of which every tick must be there."""
    audit: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    money: Books | None = None
    effects: dict[str, int] | None = None
    """How many rows each transaction of durable tasks has added."""
    replicated: bool = False
    """Servers take over from each other here."""
    runs_ahead: bool = False
    """Quick jobs of a key start before the outcome of the one before them is written, as with "fast"."""
    outcomes_may_be_lost: bool = False
    """A failover may lose outcomes: the durability promises no more."""


@dataclass
class Verdict:
    acknowledged: int = 0
    """Of the sequences; the other loads have their own counts."""
    unknown: int = 0
    """Jobs in calls that ended without an answer that settles it; each was sent again until it was acknowledged."""
    refused: list[str] = field(default_factory=list)
    """Calls that a correct server refused."""
    untold: list[str] = field(default_factory=list)
    """Sequences that were acknowledged, and nobody was told that they are new."""
    lost: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    """Run, but never sent."""
    early: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)
    excesses: list[str] = field(default_factory=list)
    """More excuses than the faults explain."""
    runs: int = 0
    again: int = 0
    ahead_ms: float = 0.0
    letters: int = 0
    books: list[str] = field(default_factory=list)
    """Where the servers' own counts say something else."""
    recovery: dict[str, list[float]] = field(default_factory=dict)
    stall: float = 0.0
    unavailable: float = 0.0
    longest_wait: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    found: Found = field(default_factory=Found)
    reports: list[Report] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        """Of all kinds of load."""
        words = ("jobs", "flows", "created", "ticks")
        return self.acknowledged + sum(
            int(report.counts.get(word, 0)) for report in self.reports for word in words
        )

    def broken(self) -> list[str]:
        """Every promise that was not kept, with an example."""
        wrong = {
            "lost": self.lost, "run but never sent": self.strange, "begun too early": self.early,
            "order": self.disorder, "refused by a correct server": self.refused, "nobody was told that they are new": self.untold,
            "orphans": self.found.orphans, "excuses": self.excesses, "books": self.books, "audit": self.found.audit,
            "leaked names": self.found.leaked,
            "not worked off": [f"{queue}: {n}" for queue, n in self.found.unfinished.items() if n],
            "why": self.found.reasons,
            "money": self.found.money.faults if self.found.money else [],
            **{report.load: report.faults for report in self.reports},
        }  # fmt: skip
        return [f"{word}: {len(some)}, such as {some[:3]}" for word, some in wrong.items() if some]


class Checker:
    def __init__(self, directory: Path, found: Found) -> None:
        self._directory = directory
        self._found = found
        self._words = words_in(directory / "faults.words")
        self._circumstances = Circumstances(
            self._words,
            crashed=found.crashed,
            ticks_until=found.until,
            replicated=found.replicated,
            effects=found.effects,
            runs_ahead=found.runs_ahead,
        )
        self.verdict = Verdict(found=found)

    def check(self) -> Verdict:
        numbers, later = self._sent()
        self._judge(self._runs(), numbers, later)
        events = events_in(self._directory)
        self._loads(events)
        self._refusals(events)
        self._crashed(events)
        self._letters(events)
        self._excuses()
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
                verdict.unknown += word["jobs"] if "error" in word else 0
                verdict.untold += word.get("untold", ())
        verdict.longest_wait = max((end - began for began, end in waits), default=0) / SECOND
        verdict.unavailable = _union([wait for wait in waits if wait[1] - wait[0] > SECOND]) / SECOND
        self._load = min((began for began, _ in waits), default=0), max((end for _, end in waits), default=0)
        return numbers, later

    def _runs(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """The events of each key of "work", in the order of time."""
        events: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for path in self._directory.glob("*.runs"):
            process = int(path.name.partition("-")[0])
            for kind, _, _, key, number, at in runs_in(path):
                events[key].append((at, process, kind, number))
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
        crashed = {
            (int(key), int(n)) for key, _, n in (id.partition(":") for id in found.crashed) if key.isdigit()
        }
        judge = Judge(
            self._circumstances, crashed, _partition, outcomes_may_be_lost=found.outcomes_may_be_lost
        )
        letters = set(found.failed)
        self._done: dict[int, list[int]] = defaultdict(list)
        self._stays: dict[int, list[Stay]] = {}
        self._effects = 0
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

    def _loads(self, events: dict[str, list[Event]]) -> None:
        for load in (same_ids, schedules, *SMALL_LOADS):
            if events.get(load.NAME):
                self.verdict.reports.append(load.check(events[load.NAME], self._circumstances))
        if events.get(durable.CALLED):
            self.verdict.reports.append(durable.check_called(events[durable.CALLED]))

    def _refusals(self, events: dict[str, list[Event]]) -> None:
        """`ServerRefused` is right only from a server that the nemesis left without memory."""
        memory = [
            (word["began"], word.get("ended", word["began"]) + OUT_OF_MEMORY_NS)
            for word in self._words
            if word.get("kind") == "out of memory"
        ]
        errors = [
            (event.at, event.facts["error"], event.facts["text"])
            for some in events.values()
            for event in some
            if event.what in ("error", "refused")
        ]
        for path in self._directory.glob("sender-*.words"):
            errors += [
                (word["at"], word["error"], word["text"]) for word in words_in(path) if "error" in word
            ]
        for at, error, text in errors:
            right = "out of memory" in text and any(low <= at <= high for low, high in memory)
            if error.endswith("Refused") and not right:
                self.verdict.refused.append(f"{error}: {text}")

    def _crashed(self, events: dict[str, list[Event]]) -> None:
        """A dead letter because its workers died has a run in the last moments of a process that was killed."""
        deaths, seen = self._circumstances.deaths, set[str]()

        def was_hit(process: int, began: int, ended: int | None) -> bool:
            death = deaths.get(process)
            return (
                death is not None and began <= death and (ended is None or ended >= death - LAST_MOMENTS_NS)
            )

        wanted = set(self._found.crashed)
        for key, stays in self._stays.items():
            seen |= {f"{key}:{s.number}" for s in stays if was_hit(s.process, s.begun, s.ended)} & wanted
        for some in events.values():
            seen |= {run.job for run in runs_of(some) if was_hit(run.process, run.began, run.ended)} & wanted
        self.verdict.books += [
            f"{id} is a dead letter because its workers died, but nobody killed one that ran it"
            for id in sorted(wanted - seen)
        ]

    def _letters(self, events: dict[str, list[Event]]) -> None:
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
        if found.replicated:
            return
        done_same = {event.job for event in events.get(same_ids.NAME, ()) if event.what == "done"}
        rung = {(event.key, event.n) for event in events.get(schedules.NAME, ())}
        exact = {"work": self._effects, "same": len(done_same), "bells": len(rung)}
        for queue, many in exact.items():
            if queue in found.completed and found.completed[queue] != many:
                verdict.books.append(f'queue "{queue}": {found.completed[queue]} completed, {many} done')
        self._totals(events)

    def _totals(self, events: dict[str, list[Event]]) -> None:
        """Every job of a small queue has ended once: those that were acknowledged, and some whose producer died before it knew."""
        asked, told = Counter[str](), Counter[str]()
        for some in events.values():
            for event in some:
                queue = event.job.partition(":")[0]
                asked[queue] += event.what == "asked"
                told[queue] += event.what == "told"
        for queue in EXACT:
            ended = self._found.ended.get(queue)
            if ended is not None and not told[queue] <= ended <= asked[queue]:
                self.verdict.books.append(
                    f'queue "{queue}": {ended} ended, {told[queue]} acknowledged, {asked[queue]} sent'
                )

    def _excuses(self) -> None:
        """The excuses of all loads together are bounded by what the nemesis did."""
        excused = Counter(self.verdict.excused)
        for report in self.verdict.reports:
            excused.update(report.excused)
        seen = self._circumstances
        causes = {"killed": len(seen.deaths), "taken over": seen.disturbances, "failover": seen.failovers}
        for cause, times in causes.items():
            words = [cause, f"overlap, {cause}", *(["zombie"] if cause == "taken over" else [])]
            many = sum(excused[word] for word in words)
            if many > EXCUSES_EACH * times:
                self.verdict.excesses.append(f"{many} runs excused as {cause}, which happened {times} times")

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


def _partition(key: int) -> int:
    return partition_of_digest(digest(str(key)), PARTITIONS)


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
