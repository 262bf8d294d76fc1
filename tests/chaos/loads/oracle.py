"""What the oracles of several loads have in common: which jobs were lost, which runs were one too many, how many ran at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from circumstances import Circumstances

from loads.record import Event, Report

ENDS = ("done", "failed", "dead", "left")


@dataclass(slots=True)
class Run:
    """One run of one job in one process; `ended` is None if nobody wrote down its end."""

    job: str
    key: str
    process: int
    began: int
    ended: int | None = None
    how: str = ""


def runs_of(events: Iterable[Event]) -> list[Run]:
    runs: list[Run] = []
    running: dict[tuple[int, str], list[Run]] = defaultdict(list)
    for event in events:
        if event.what == "began":
            run = Run(event.job, event.key, event.process, event.at)
            runs.append(run)
            running[event.process, event.job].append(run)
        elif event.what in ENDS and running[event.process, event.job]:
            run = running[event.process, event.job].pop(0)
            run.ended, run.how = event.at, event.what
    return runs


def check_delivery(report: Report, events: list[Event], *, may_not_run: Iterable[str] = ()) -> None:
    """Every acknowledged job had its effect, and nothing ran that nobody asked for."""
    asked = {event.job for event in events if event.what == "asked"}
    told = {event.job for event in events if event.what == "told"}
    began = {event.job for event in events if event.what == "began"}
    done = {event.job for event in events if event.what == "done"}
    report.counts["jobs"] = len(told)
    report.faults += [f"{job} is lost" for job in sorted(told - done - set(may_not_run))]
    report.faults += [f"{job} ran, but nobody asked for it" for job in sorted(began - asked)]


def check_created(report: Report, events: list[Event]) -> None:
    """A job whose enqueue was answered at once, without an error, was new: nobody else uses its id."""
    failed = {event.job for event in events if event.what == "error"}
    report.faults += [
        f"{event.job}: nobody was told that it was created"
        for event in events
        if event.what == "told" and not event.facts.get("created") and event.job not in failed
    ]


def check_never_twice(report: Report, runs: Iterable[Run]) -> None:
    """A job never runs twice at once in one process."""
    last: dict[tuple[int, str], Run] = {}
    for run in runs:
        before = last.get((run.process, run.job))
        if before is not None and (before.ended is None or before.ended > run.began):
            report.faults.append(f"{run.job} ran twice at once in process {run.process}")
        last[run.process, run.job] = run


def check_at_once(
    report: Report, runs: Iterable[Run], limit: int, circumstances: Circumstances,
    group: Callable[[Run], str] = lambda run: "",
) -> None:  # fmt: skip
    """Never more than `limit` runs of a group at a time, except beside a worker that was frozen or cut off, or a failover."""
    running: dict[str, list[Run]] = defaultdict(list)
    most, excused = 0, Counter[str]()
    for run in sorted(runs, key=lambda run: run.began):
        some = running[group(run)]
        some[:] = [other for other in some if circumstances.end_of(other) > run.began]
        some.append(run)
        most = max(most, len(some) if len(some) <= limit else 0)
        if len(some) <= limit:
            continue
        if any(circumstances.was_taken_over(other.process, other.began, run.began) for other in some):
            excused["taken over"] += 1
        elif circumstances.failed_over(min(other.began for other in some), run.began):
            excused["failover"] += 1
        else:
            jobs = ", ".join(f"{other.job} in {other.process}" for other in some)
            report.faults.append(f"{len(some)} at a time instead of {limit}: {jobs}")
    report.counts["most at a time"] = most
    report.excused = dict(excused)
