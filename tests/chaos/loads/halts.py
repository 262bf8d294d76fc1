"""Halts: a failed job stops its lane until somebody sends it round again. Those behind it must not start before it is done."""

from __future__ import annotations

import asyncio
import os

from campaign_app import KEEP, MENDED, RETRY, app
from circumstances import Circumstances

import qbull
from loads.keyed import check_keyed, lot, produce_keyed
from loads.record import Event, Report, run_recorded

NAME = "halts"
queue = app.queue(
    NAME, order="key", on_failed="halt", partitions=2, concurrency=4, retry=RETRY, keep=KEEP, alert=False
)


@queue.task(key="{key}", id="halts:{key}:{number}")
async def halting_step(key: str, number: int) -> None:
    with run_recorded(NAME, key, number):
        draw = lot(key, number)
        await asyncio.sleep(draw % 5 / 1000)
        if draw % 20 == 0 and not os.path.exists(MENDED):
            raise qbull.Fail("it cannot be done until it is mended")


async def produce() -> None:
    await produce_keyed(
        NAME, queue, lambda key, n: halting_step.enqueue(key=key, number=n), keys=10, pause=0.1
    )


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = check_keyed(NAME, events, circumstances, halts=True)
    report.counts["halts"] = sum(event.what == "dead" for event in events)
    return report
