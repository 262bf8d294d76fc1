"""Unique, in all modes. Each subject is asked for by one producer, with values that grow, so it is known which call was the newest."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

from campaign_app import KEEP, RETRY, app
from circumstances import Circumstances

import qbull
from loads.keyed import lot
from loads.oracle import Run, check_at_once, check_never_twice, runs_of
from loads.record import LIFE, Event, Report, ask, run_recorded, wait_for_room

NAME = "unique"
MODES = {"first": 2.0, "last": 2.0, "reschedule": 2.0, "debounce": 0.7, "after": 60.0}
"""The mode, and its window in seconds."""
MS = 1_000_000
CLOCK_NS = 5 * MS
"""The server rounds its clock to milliseconds."""
queue = app.queue(NAME, partitions=2, concurrency=6, retry=RETRY, keep=KEEP, alert=False)


@queue.task
async def refresh(subject: str, value: int) -> None:
    with run_recorded(NAME, subject, value):
        await asyncio.sleep(value % 4 / 100)


def delay_of(subject: str, value: int) -> float:
    """With "reschedule" every other call is for later, and the job takes the delay with the arguments."""
    draw = lot(subject, value)
    return draw % 1000 / 1000 + 0.2 if subject.startswith("reschedule") and draw % 2 else 0.0


async def produce() -> None:
    await asyncio.gather(*(_ask_for(mode, k) for mode in MODES for k in range(3)))


async def _ask_for(mode: str, k: int) -> None:
    luck = random.Random()
    subject, value = f"{mode}-{LIFE}-{k}", 0
    unique = qbull.Unique(window=MODES[mode], by=("subject",), mode=mode)
    while True:
        await wait_for_room(queue)
        delay = delay_of(subject, value)
        call = refresh.options(unique=unique, delay=delay) if delay else refresh.options(unique=unique)
        await ask(
            NAME, f"{subject}:{value}", lambda v=value, call=call: call.enqueue(subject=subject, value=v), key=subject, n=value
        )  # fmt: skip
        value += 1
        await asyncio.sleep(luck.choice((0.0, luck.uniform(0.0, 1.5))))


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    subjects: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        subjects[event.key].append(event)
    for subject, some in subjects.items():
        mode = subject.partition("-")[0]
        _check_newest(report, subject, some, mode)
        if mode == "first":
            _check_windows(report, subject, some)
        if mode == "debounce":
            _check_pause(report, subject, some)
        if mode == "reschedule":
            _check_delays(report, subject, some)
    runs = runs_of(events)
    check_never_twice(report, runs)
    after = [run for run in runs if run.key.startswith("after-") and run.job not in circumstances.crashed]
    check_at_once(report, after, 1, circumstances, group=_subject)
    report.counts = {
        "calls": sum(event.what == "told" for event in events),
        "created": sum(event.what == "told" and event.facts["created"] for event in events),
        "runs": len(runs),
    }
    return report


def _subject(run: Run) -> str:
    return run.key


def _check_newest(report: Report, subject: str, events: list[Event], mode: str) -> None:
    """The first of a window runs, or the newest: a call is answered by a run of its own arguments or of newer ones."""
    asked = {event.n for event in events if event.what == "asked"}
    done = {event.n for event in events if event.what == "done"}
    newest = max(done, default=-1)
    for event in events:
        if event.what != "told":
            continue
        if mode == "first" and event.facts["created"] and event.n not in done:
            report.faults.append(f"{subject}: call {event.n} is lost")
        if mode != "first" and event.n > newest:
            report.faults.append(f"{subject}: call {event.n} is lost, the newest that ran is {newest}")
    report.faults += [f"{subject}: {n} ran, but nobody asked for it" for n in sorted(done - asked)]


def _check_windows(report: Report, subject: str, events: list[Event]) -> None:
    """Within a window only one call creates a job."""
    began = {event.n: event.at for event in events if event.what == "asked"}
    created = [event for event in events if event.what == "told" and event.facts["created"]]
    for i, event in enumerate(created[1:], 1):
        before = created[i - 1]
        if event.at < began[before.n] + MODES["first"] * 1e9:
            report.faults.append(f"{subject}: calls {before.n} and {event.n} both count within one window")


def _check_delays(report: Report, subject: str, events: list[Event]) -> None:
    """A run has the arguments of one call, and does not start before the delay of that call is over."""
    asked = {event.n: event.at for event in events if event.what == "asked"}
    for event in events:
        waited = event.at - asked.get(event.n, 0)
        if event.what == "began" and waited < delay_of(subject, event.n) * 1e9 - CLOCK_NS:
            report.faults.append(
                f"{subject}: {event.n} ran {waited // MS} ms after its call, before it was due"
            )


def _check_pause(report: Report, subject: str, events: list[Event]) -> None:
    """A debounced job runs only after a window without calls."""
    began = {event.n: event.at for event in events if event.what == "asked"}
    for event in events:
        waited = event.at - began.get(event.n, 0)
        if event.what == "began" and waited < MODES["debounce"] * 1e9 - CLOCK_NS:
            report.faults.append(f"{subject}: {event.n} ran {waited // MS} ms after its call")
