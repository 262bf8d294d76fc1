"""Durable tasks: 3 to 50 steps in stages, some beside each other, with sleeps, signals, checkpoints and failed attempts between them.

A step of a stage runs only after every step of the stages before it was recorded. So the steps that were run tell which were recorded.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter, defaultdict
from typing import NamedTuple

from campaign_app import KEEP, RETRY, app
from circumstances import SECOND, Circumstances

import qbull
from loads.oracle import check_created, check_delivery, check_never_twice, runs_of
from loads.record import Event, Report, ask, fresh_id, note, run_recorded, wait_for_room

NAME = "durable"
PRODUCERS = 12
SIGNAL_SECONDS = 8.0
"""A task waits so long for a signal; its producer may have been killed."""
MAX_EARLY_NS = 5_000_000
"""The server counts milliseconds, and the note is written a moment before the sleep starts."""
queue = app.queue(NAME, partitions=2, concurrency=8, retry=RETRY, keep=KEEP, alert=False)


class Stage(NamedTuple):
    """Steps beside each other; before them the task may wait. `loops`: so many steps, with a checkpoint after each."""

    width: int = 1
    sleeps: float = 0.0
    signals: int = 0
    loops: int = 0
    fails: bool = False
    """The first attempt fails before this stage."""


def stages_of(job: str) -> list[Stage]:
    """What a job is to do, known from its id alone."""
    luck = random.Random(zlib.crc32(job.encode()))
    left = luck.choice((3, 5, 8, 12, 20, 50))
    stages = []
    while left > 0:
        width = min(luck.choice((1, 1, 1, 2, 4)), left)
        wait = luck.random()
        stages.append(
            Stage(
                width,
                sleeps=luck.uniform(0.05, 0.5) if wait < 0.04 else 0.0,
                signals=luck.choice((1, 2)) if 0.04 <= wait < 0.08 else 0,
                fails=0.08 <= wait < 0.1,
            )
        )
        left -= width
    if luck.random() < 0.1:
        stages.append(Stage(0, loops=luck.randint(2, 6)))
    return stages


async def add(job: str, stage: int, place: int) -> int:
    note(NAME, "step", job, n=stage, place=place)
    return value_of(stage, place)


def value_of(stage: int, place: int) -> int:
    return stage * 100 + place


@queue.task(durable=True)
async def fulfil(job: str) -> int:
    current = qbull.current_job()
    with run_recorded(NAME) as attempt:
        total, got = 0, list[int]()
        for number, stage in enumerate(stages_of(job)):
            if stage.fails and attempt == 1:
                raise ValueError("not yet")
            if stage.sleeps:
                note(NAME, "sleeps", job, n=number)
                await current.sleep(stage.sleeps)
            for _ in range(stage.signals):
                note(NAME, "waits", job, n=len(got), stage=number)
                try:
                    got.append(await current.wait_for("go", type=int, timeout=SIGNAL_SECONDS))
                except qbull.SignalTimeout:
                    got.append(-1)
            places = (current.step(add, job, number, place) for place in range(stage.width))
            total += sum(await asyncio.gather(*places))
            if stage.loops:
                total += await _loop(job, number, stage.loops)
        note(NAME, "returns", job, total=total, got=got)
        return total


async def _loop(job: str, number: int, loops: int) -> int:
    current = qbull.current_job()
    place, total = await current.checkpoint((0, 0))
    while place < loops:
        total += await current.step(add, job, number, place)
        place, total = await current.checkpoint((place + 1, total))
    return total


async def produce() -> None:
    await asyncio.gather(*(_produce_one_after_the_other() for _ in range(PRODUCERS)))


async def _produce_one_after_the_other() -> None:
    luck = random.Random()
    while True:
        await wait_for_room(queue)
        job = fresh_id(NAME)
        handle = await ask(NAME, job, lambda job=job: fulfil.options(id=job).enqueue(job=job))
        for value in range(sum(stage.signals for stage in stages_of(job))):
            await asyncio.sleep(luck.uniform(0.0, 0.3))
            await _signal(handle, job, value)
        await asyncio.sleep(luck.uniform(0.0, 0.3))


async def _signal(handle: qbull.Job[int], job: str, value: int) -> None:
    """Send it until that is acknowledged. A job that timed out before it may have ended."""
    while True:
        try:
            await handle.signal("go", value, id=f"{value}")
        except qbull.ServerError:
            await asyncio.sleep(0.05)
            continue
        except (qbull.Conflict, qbull.NotFound):
            return
        note(NAME, "signalled", job, n=value)
        return


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    check_delivery(report, [event for event in events if event.what != "step"])
    check_created(report, events)
    check_never_twice(report, runs_of(events))
    by_job: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.what in ("step", "sleeps", "waits", "signalled", "returns", "began"):
            by_job[event.job].append(event)
    counts: Counter[str] = Counter()
    for job, some in by_job.items():
        stages = stages_of(job)
        _check_steps(report, counts, job, stages, some, circumstances)
        _check_sleeps(report, job, stages, some)
        _check_signals(report, counts, job, some)
    report.counts |= {"steps": counts["steps"], "signals": counts["signals"]}
    report.excused = {word: many for word, many in counts.items() if word == "taken over"}
    return report


def _check_steps(
    report: Report, counts: Counter[str], job: str, stages: list[Stage], events: list[Event],
    circumstances: Circumstances,
) -> None:  # fmt: skip
    """A recorded step does not run again, none is skipped, none runs twice in one run, and the results are those of the steps."""
    ran: set[tuple[int, int]] = set()
    this_run: set[tuple[int, int, int]] = set()
    furthest, since = -1, 0
    for event in events:
        if event.what == "began":
            this_run = {step for step in this_run if step[0] != event.process}
        if event.what != "step":
            continue
        step = event.n, event.facts["place"]
        reached = event.n + step[1] / 1000 if stages[event.n].loops else event.n
        counts["steps"] += step not in ran
        ran.add(step)
        if (event.process, *step) in this_run:
            report.faults.append(f"{job}: step {step} ran twice in one run")
        this_run.add((event.process, *step))
        if reached < furthest:
            if circumstances.was_taken_over(event.process, since, event.at):
                counts["taken over"] += 1
            else:
                report.faults.append(f"{job}: step {step} ran again although it was recorded")
        else:
            furthest, since = reached, event.at
    planned = {(n, place) for n, stage in enumerate(stages) for place in range(stage.width or stage.loops)}
    total = sum(value_of(*step) for step in planned)
    for event in events:
        if event.what == "returns":
            report.faults += [f"{job}: step {step} was skipped" for step in sorted(planned - ran)]
            if event.facts["total"] != total:
                report.faults.append(f"{job} returned {event.facts['total']} instead of {total}")
            break


def _check_sleeps(report: Report, job: str, stages: list[Stage], events: list[Event]) -> None:
    """The step after a sleep starts after it."""
    slept: dict[int, int] = {}
    for event in events:
        if event.what == "sleeps":
            slept.setdefault(event.n, event.at)
        elif event.what == "step" and event.n in slept:
            due = slept[event.n] + int(stages[event.n].sleeps * SECOND)
            if event.at < due - MAX_EARLY_NS:
                report.faults.append(f"{job}: woke up {(due - event.at) / SECOND:.3f} s too early")


def _check_signals(report: Report, counts: Counter[str], job: str, events: list[Event]) -> None:
    """Each signal is seen once, in the order of sending. One that was there before a wait timed out is not missed."""
    sent = {event.n: event.at for event in events if event.what == "signalled"}
    waited: dict[int, int] = {}
    for event in events:
        if event.what == "waits":
            waited.setdefault(event.n, event.at)
        elif event.what == "returns":
            got = event.facts["got"]
            seen = [value for value in got if value >= 0]
            counts["signals"] += len(seen)
            if seen != list(range(len(seen))):
                report.faults.append(f"{job} saw the signals {seen}")
            for place, value in enumerate(got):
                expected = sum(other >= 0 for other in got[:place])
                deadline = waited.get(place, event.at) + int((SIGNAL_SECONDS - 1) * SECOND)
                if value < 0 and sent.get(expected, deadline) < deadline:
                    report.faults.append(f"{job}: wait {place} timed out although the signal was there")
            return
