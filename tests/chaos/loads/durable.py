"""Durable tasks: 3 to 50 steps in stages, some beside each other, with sleeps, signals, calls of other tasks, transactions in PostgreSQL,
checkpoints, failed attempts and new starts between them.

A step of a stage runs only after every step of the stages before it was recorded. So the steps that were run tell which were recorded.
A transaction adds a row to a table, which is counted when all is over.
"""

from __future__ import annotations

import asyncio
import os
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg
from campaign_app import DATABASE, ENOUGH_STEPS, KEEP, RETRY, app
from circumstances import SECOND, Circumstances
from psycopg_pool import AsyncConnectionPool

import qbull
from loads.oracle import check_created, check_delivery, check_never_twice, runs_of
from loads.record import Event, Report, ask, fresh_id, note, note_refusal, run_recorded, wait_for_room

NAME, CALLED = "durable", "called"
PRODUCERS = int(os.environ.get("CHAOS_DURABLE_PRODUCERS", "1"))
FEW_PRODUCERS = 12
"""When the campaign has had enough steps."""
ROOM_OF_PRODUCER = 16
"""Unfinished jobs of a producer beyond which it rests. Most of them sleep or wait."""
SIGNAL_SECONDS = 8.0
"""A task waits so long for a signal; its producer may have been killed."""
MAX_EARLY_NS = 5_000_000
"""The server counts milliseconds, and the note is written a moment before the sleep starts."""
FIRST_CALL, BOOKING = 50, 90
"""The places of the called jobs of a stage, and of its transaction, after those of its steps."""
CREATE = "CREATE TABLE durable_effects (job text NOT NULL, stage int NOT NULL);"
MANY_ATTEMPTS = qbull.Retry(attempts=1000, backoff="fixed", delay=0.1)
"""A job cannot go on while the database is down."""
queue = app.queue(NAME, partitions=4, concurrency=16, retry=MANY_ATTEMPTS, keep=KEEP, alert=False)
called = app.queue(CALLED, partitions=2, concurrency=8, retry=RETRY, keep=KEEP, alert=False)
pool = AsyncConnectionPool(DATABASE, min_size=1, max_size=5, open=False, timeout=5) if DATABASE else None


class Stage(NamedTuple):
    """Steps beside each other; before them the task may wait. `loops`: so many steps, with a checkpoint after each."""

    width: int = 1
    sleeps: float = 0.0
    signals: int = 0
    loops: int = 0
    fails: bool = False
    """The first attempt fails before this stage."""
    calls: int = 0
    """Jobs that the task calls, beside each other, after its steps."""
    books: bool = False
    """Then a transaction adds a row."""
    starts_over: bool = False
    """Then the job starts over, with the stages that are left."""

    @property
    def places(self) -> list[int]:
        """Of its steps and called jobs."""
        calls = range(FIRST_CALL, FIRST_CALL + self.calls)
        return [*range(self.width or self.loops), *calls]


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
                calls=luck.choice((1, 1, 3)) if 0.1 <= wait < 0.16 else 0,
                books=0.16 <= wait < 0.22,
                starts_over=0.22 <= wait < 0.25,
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


async def book(connection: Any, job: str, stage: int) -> int:
    await connection.execute("INSERT INTO durable_effects (job, stage) VALUES (%s, %s)", (job, stage))
    return value_of(stage, BOOKING)


@called.task
async def assist(job: str, stage: int, place: int) -> int:
    with run_recorded(CALLED):
        note(NAME, "called", job, n=stage, place=place, id=qbull.current_job().id)
        await asyncio.sleep(0.002)
        return value_of(stage, place)


@queue.task(durable=True)
async def fulfil(job: str, first: int = 0, total: int = 0, got: list[int] | None = None) -> int:
    current, got = qbull.current_job(), list(got or ())
    with run_recorded(NAME) as attempt:
        for number, stage in enumerate(stages_of(job)):
            if number < first:
                continue
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
            total += await _work(job, number, stage)
            if stage.starts_over:
                current.continue_as(job, number + 1, total, got)
        note(NAME, "returns", job, total=total, got=got, books=pool is not None)
        return total


async def _work(job: str, number: int, stage: Stage) -> int:
    """The steps, calls and the transaction of a stage; the sum of their results."""
    current = qbull.current_job()
    steps = (current.step(add, job, number, place) for place in range(stage.width))
    total = sum(await asyncio.gather(*steps))
    calls = (current.call(assist.step(job, number, FIRST_CALL + n)) for n in range(stage.calls))
    total += sum(await asyncio.gather(*calls))
    if stage.books and pool is not None:
        await pool.open()
        total += await current.transaction(pool, book, job, number)
    if stage.loops:
        total += await _loop(job, number, stage.loops)
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
        producers = min(PRODUCERS, FEW_PRODUCERS) if ENOUGH_STEPS.exists() else PRODUCERS
        await wait_for_room(queue, producers * ROOM_OF_PRODUCER)
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
        except qbull.ServerError as error:
            note_refusal(NAME, job, error)
            await asyncio.sleep(0.05)
            continue
        except (qbull.Conflict, qbull.NotFound):
            return
        note(NAME, "signalled", job, n=value)
        return


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    check_delivery(report, [event for event in events if event.what not in ("step", "called")])
    check_created(report, events)
    check_never_twice(report, runs_of(events))
    by_job: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.what in ("step", "called", "sleeps", "waits", "signalled", "returns", "began"):
            by_job[event.job].append(event)
    counts: Counter[str] = Counter()
    for job, some in by_job.items():
        stages = stages_of(job)
        _check_steps(report, counts, job, stages, some, circumstances)
        _check_sleeps(report, job, stages, some)
        _check_signals(report, counts, job, some)
        _check_calls(report, counts, job, some, circumstances.crashed)
        _check_effects(report, counts, job, stages, some, circumstances.effects)
    words = ("steps", "signals", "calls", "transactions", "new starts")
    report.counts |= {word: counts[word] for word in words}
    report.excused = {word: many for word, many in counts.items() if word == "taken over"}
    return report


LATER_THAN_STEPS: dict[str, Callable[[Event], float]] = {
    "sleeps": lambda event: event.n,
    "waits": lambda event: event.facts["stage"],
    "called": lambda event: event.n + 0.5,
}
"""How far a job is when it writes this down: before the steps of its stage, or behind them."""


def check_called(events: list[Event]) -> Report:
    """Of the jobs that durable tasks have called, beside what `check` says of their results."""
    report = Report(CALLED)
    runs = runs_of(events)
    check_never_twice(report, runs)
    report.counts["runs"] = len(runs)
    return report


def _check_steps(
    report: Report, counts: Counter[str], job: str, stages: list[Stage], events: list[Event],
    circumstances: Circumstances,
) -> None:  # fmt: skip
    """A recorded step does not run again, none is skipped, none runs twice in one run, and the results are those of the steps."""
    ran: set[tuple[int, int]] = set()
    this_run: set[tuple[int, int, int]] = set()
    furthest, since = -1.0, 0
    for event in events:
        # What comes after the steps of earlier stages shows that they were recorded, too.
        if event.what in LATER_THAN_STEPS and furthest < (there := LATER_THAN_STEPS[event.what](event)):
            furthest, since = there, event.at
        if event.what == "began":
            this_run = {step for step in this_run if step[0] != event.process}
        if event.what == "called":
            ran.add((event.n, event.facts["place"]))
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
    planned = {(n, place) for n, stage in enumerate(stages) for place in stage.places}
    total = sum(value_of(*step) for step in planned)
    for event in events:
        if event.what == "returns":
            if event.facts.get("books"):
                total += sum(value_of(n, BOOKING) for n, stage in enumerate(stages) if stage.books)
            counts["new starts"] += sum(stage.starts_over for stage in stages)
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


def _check_calls(
    report: Report, counts: Counter[str], job: str, events: list[Event], crashed: set[str]
) -> None:
    """Each call has one job, however often it ran. After one that is a dead letter because its workers died, the task calls again."""
    ids: dict[tuple[int, int], set[str]] = defaultdict(set)
    for event in events:
        if event.what == "called":
            ids[event.n, event.facts["place"]].add(event.facts["id"])
    counts["calls"] += len(ids)
    for call, some in ids.items():
        if len(some - crashed) > 1:
            report.faults.append(f"{job}: call {call} enqueued {len(some)} jobs")


def _check_effects(
    report: Report, counts: Counter[str], job: str, stages: list[Stage], events: list[Event],
    effects: dict[str, int] | None,
) -> None:  # fmt: skip
    """Each transaction has added one row; a job that has returned left none out."""
    if effects is None:
        return
    has_returned = any(event.what == "returns" for event in events)
    for number, stage in enumerate(stages):
        rows = effects.get(f"{job} {number}", 0)
        counts["transactions"] += rows > 0
        if rows > 1:
            report.faults.append(f"{job}: the transaction of stage {number} happened {rows} times")
        if rows and not stage.books:
            report.faults.append(f"{job}: stage {number} has a row, but no transaction")
        if not rows and stage.books and has_returned:
            report.faults.append(f"{job}: the transaction of stage {number} left no row")


def effects_in(database: str) -> dict[str, int]:
    """How many rows each transaction has added, by job and stage."""
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT job, stage, count(*) FROM durable_effects GROUP BY job, stage")
        return {f"{job} {stage}": many for job, stage, many in rows}
