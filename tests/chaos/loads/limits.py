"""Limits: three jobs of a queue at a time over all workers (max_active), and two of a key at a time (lanes)."""

from __future__ import annotations

import asyncio
import random

from campaign_app import KEEP, RETRY, app
from circumstances import Circumstances

import qbull
from loads.keyed import lot
from loads.oracle import Run, check_at_once, check_created, check_delivery, check_never_twice, runs_of
from loads.record import Event, Report, ask, fresh_id, run_recorded, wait_for_room

NAME = "limits"
MAX_ACTIVE = 3
LANE = 2
KEYS = 6
capped = app.queue(
    "capped", partitions=2, concurrency=3, max_active=MAX_ACTIVE, retry=RETRY, keep=KEEP, alert=False
)
lanes = app.queue(
    "lanes", partitions=2, concurrency=4, lane=qbull.Lane(limit=LANE), retry=RETRY, keep=KEEP, alert=False
)


@capped.task
async def capped_step() -> None:
    await _step("capped", "")


@lanes.task(key="{key}")
async def lane_step(key: str) -> None:
    await _step("lanes", key)


async def _step(queue: str, key: str) -> None:
    draw = lot(qbull.current_job().id, 0)
    with run_recorded(NAME, key, queue=queue) as attempt:
        await asyncio.sleep(draw % 60 / 1000)
        if draw % 10 == 0 and attempt == 1:
            raise ValueError("not yet")


async def produce() -> None:
    await asyncio.gather(_produce_capped(), _produce_lanes())


async def _produce_capped() -> None:
    luck = random.Random()
    while True:
        await wait_for_room(capped)
        ids = [fresh_id("capped") for _ in range(luck.randint(1, 20))]
        await asyncio.gather(
            *(ask(NAME, id, lambda id=id: capped_step.options(id=id).enqueue()) for id in ids)
        )
        await asyncio.sleep(luck.uniform(0.0, 3.0))


async def _produce_lanes() -> None:
    luck = random.Random()
    while True:
        await wait_for_room(lanes)
        key = f"lane{luck.randrange(KEYS)}"
        await asyncio.gather(*(_ask_lane(key) for _ in range(luck.randint(1, 12))))
        await asyncio.sleep(luck.uniform(0.0, 1.5))


async def _ask_lane(key: str) -> None:
    id = fresh_id("lanes")
    await ask(NAME, id, lambda: lane_step.options(id=id).enqueue(key=key), key=key)


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    check_delivery(report, events)
    check_created(report, events)
    runs = runs_of(events)
    check_never_twice(report, runs)
    check_at_once(report, [run for run in runs if not run.key], MAX_ACTIVE, circumstances)
    excused = report.excused
    check_at_once(report, [run for run in runs if run.key], LANE, circumstances, group=_lane)
    report.excused = {
        word: excused.get(word, 0) + report.excused.get(word, 0) for word in excused | report.excused
    }
    del report.counts["most at a time"]
    report.counts["runs"] = len(runs)
    return report


def _lane(run: Run) -> str:
    return run.key
