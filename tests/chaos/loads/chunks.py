"""Chunks: a task that takes up to twenty jobs in one call. Some of a chunk fail once, and only these are tried again."""

from __future__ import annotations

import asyncio
import random

from campaign_app import KEEP, RETRY, app
from circumstances import Circumstances

import qbull
from loads.keyed import lot
from loads.oracle import check_created, check_delivery, check_never_twice, runs_of
from loads.record import Event, Report, ask, fresh_id, note, wait_for_room

NAME = "chunks"
CHUNK = 20
queue = app.queue(NAME, partitions=2, concurrency=CHUNK, retry=RETRY, keep=KEEP, alert=False)


@queue.task(chunk=CHUNK, wait=0.2)
async def take_chunk(numbers: list[int]) -> list[int | Exception]:
    jobs = qbull.current_jobs()
    for job in jobs:
        note(NAME, "began", job.id, size=len(jobs))
    try:
        await asyncio.sleep(0.005)
    except BaseException:
        for job in jobs:
            note(NAME, "left", job.id)
        raise
    answers: list[int | Exception] = []
    for job, number in zip(jobs, numbers, strict=True):
        fails = job.attempt == 1 and lot(NAME, number) % 10 == 0
        note(NAME, "failed" if fails else "done", job.id, n=number, attempt=job.attempt)
        answers.append(ValueError("not yet") if fails else number)
    return answers


async def produce() -> None:
    luck = random.Random()
    while True:
        await wait_for_room(queue)
        numbers = [luck.randrange(1_000_000) for _ in range(luck.randint(1, 40))]
        ids = [fresh_id(NAME) for _ in numbers]
        await asyncio.gather(
            *(
                ask(NAME, id, lambda id=id, n=n: take_chunk.options(id=id).enqueue(n), n=n)
                for id, n in zip(ids, numbers, strict=True)
            )
        )
        await asyncio.sleep(luck.uniform(0.0, 1.6))


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    check_delivery(report, events)
    check_created(report, events)
    check_never_twice(report, runs_of(events))
    sizes = [event.facts["size"] for event in events if event.what == "began"]
    report.counts["runs"] = len(sizes)
    report.counts["largest chunk"] = max(sizes, default=0)
    report.faults += [f"a chunk of {size} jobs" for size in sizes if size > CHUNK]
    sent = {event.job: event.n for event in events if event.what == "asked"}
    for event in events:
        if event.what == "done" and sent.get(event.job, event.n) != event.n:
            report.faults.append(f"{event.job} had the arguments of another job")
        if event.what == "done" and lot(NAME, event.n) % 10 == 0 and event.facts["attempt"] == 1:
            report.faults.append(f"{event.job} did not have its second attempt")
    return report
