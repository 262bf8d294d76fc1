"""Threads: plain functions with an order. One in ten fails once; most are quick, some run for up to a second, through stops and kills."""

from __future__ import annotations

import time

from campaign_app import KEEP, RETRY, app
from circumstances import Circumstances

from loads.keyed import check_keyed, lot, produce_keyed
from loads.record import Event, Report, run_recorded

NAME = "threads"
queue = app.queue(NAME, order="key", partitions=2, concurrency=4, retry=RETRY, keep=KEEP, alert=False)


@queue.task(key="{key}", id="threads:{key}:{number}")
def thread_step(key: str, number: int) -> None:
    with run_recorded(NAME, key, number) as attempt:
        draw = lot(key, number)
        time.sleep(draw % 1000 / 1000 if draw % 25 == 0 else draw % 8 / 1000)
        if draw % 10 == 0 and attempt == 1:
            raise ValueError("not yet")


async def produce() -> None:
    await produce_keyed(
        NAME, queue, lambda key, n: thread_step.enqueue(key=key, number=n), keys=12, pause=0.06
    )


def check(events: list[Event], circumstances: Circumstances) -> Report:
    return check_keyed(NAME, events, circumstances)
