"""Cancels: jobs that wait, are delayed or run are cancelled. A job that was cancelled before it started must never start."""

from __future__ import annotations

import asyncio
import random

from campaign_app import KEEP, RETRY, app
from circumstances import SECOND, Circumstances

import qbull
from loads.oracle import check_created, check_never_twice, runs_of
from loads.record import Event, Report, ask, fresh_id, note, note_refusal, run_recorded, wait_for_room

NAME = "cancels"
HEARD_NS = 2 * SECOND
"""A worker hears of it within a second; the machine is busy."""
queue = app.queue(NAME, partitions=2, concurrency=6, retry=RETRY, keep=KEEP, alert=False)


@queue.task
async def stoppable(seconds: float) -> None:
    with run_recorded(NAME):
        await asyncio.sleep(seconds)


async def produce() -> None:
    luck = random.Random()
    asking: set[asyncio.Task[None]] = set()
    while True:
        await wait_for_room(queue)
        asking.add(task := asyncio.create_task(_ask_and_cancel(luck)))
        task.add_done_callback(asking.discard)
        await asyncio.sleep(luck.uniform(0.0, 0.5))


async def _ask_and_cancel(luck: random.Random) -> None:
    id, seconds = fresh_id(NAME), luck.choice((0.0, luck.uniform(0.0, 0.6)))
    delay = luck.choice((0.0, luck.uniform(0.2, 1.5)))
    call = stoppable.options(id=id, delay=delay)
    job = await ask(NAME, id, lambda: call.enqueue(seconds=seconds))
    if luck.random() < 0.4:
        return
    await asyncio.sleep(luck.uniform(0.0, 0.8))
    note(NAME, "cancelling", id)
    while True:
        try:
            word = await job.cancel()
        except qbull.Conflict as error:
            word = error.state
        except qbull.NotFound:
            word = "unknown"
        except qbull.ServerError as error:
            note_refusal(NAME, id, error)
            await asyncio.sleep(0.05)
            continue
        note(NAME, "answer", id, word=word)
        return


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    told = {event.job: event.at for event in events if event.what == "told"}
    asked = {event.job for event in events if event.what == "asked"}
    done = {event.job for event in events if event.what == "done"}
    tried = {event.job for event in events if event.what == "cancelling"}
    answers = {event.job: event for event in events if event.what == "answer"}
    words = [event.facts["word"] for event in answers.values()]
    report.counts = {
        "jobs": len(told),
        "cancelled": words.count("cancelled"),
        "while they ran": words.count("cancelling"),
    }
    report.faults += [f"{job} is lost" for job in sorted(told.keys() - done - tried)]
    report.faults += [
        f"{job} is not known any more" for job, event in answers.items() if event.facts["word"] == "unknown"
    ]
    report.faults += [
        f"{job} is lost: it was {event.facts['word']} when somebody cancelled it"
        for job, event in answers.items()
        if event.facts["word"] == "completed" and job not in done
    ]
    for event in events:
        if event.what != "began":
            continue
        if event.job not in asked:
            report.faults.append(f"{event.job} ran, but nobody asked for it")
        answer = answers.get(event.job)
        if (
            answer is None
            or answer.facts["word"] not in ("cancelled", "cancelling")
            or event.at < answer.at + HEARD_NS
        ):
            continue
        if circumstances.failed_over(answer.at, event.at):
            report.excused["failover"] = report.excused.get("failover", 0) + 1
        elif circumstances.was_taken_over(event.process, answer.at, event.at):
            report.excused["taken over"] = report.excused.get("taken over", 0) + 1
        else:
            late = (event.at - answer.at) / SECOND
            report.faults.append(f"{event.job} started {late:.1f} s after it was {answer.facts['word']}")
    check_created(report, events)
    check_never_twice(report, runs_of(events))
    return report
