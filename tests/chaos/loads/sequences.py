"""Sequences: most jobs of a campaign. Jobs of many keys, in order; some fail, some are slow, some become dead letters.

Their histories are binary (history.py), because there are millions of them; checker.py judges them.
"""

from __future__ import annotations

import asyncio
import os
import time

from campaign_app import HERE, MENDED, RETRY, app
from history import BEGUN, DEAD, DONE, FAILED, LEFT, RUN, Book
from job_plan import PARTITIONS, plan_of

import qbull

work = app.queue(
    "work",
    order="key",
    partitions=PARTITIONS,
    concurrency=10,
    retry=RETRY,
    keep=qbull.Keep(completed=20_000, failed=1_000_000),
    alert=False,
)
book = Book(HERE / f"{os.getpid()}-{time.monotonic_ns()}.runs")
pack, now = RUN.pack, time.monotonic_ns


@work.task(key="{key}", id="{key}:{number}")
async def step(key: int, number: int) -> None:
    plan = plan_of(key, number)
    attempt = qbull.current_job().attempt
    book.write(pack(BEGUN, attempt, 0, key, number, now()))
    if plan.seconds:
        try:
            await asyncio.sleep(plan.seconds)
        except asyncio.CancelledError:
            book.write(pack(LEFT, attempt, 0, key, number, now()))
            raise
    if attempt <= plan.failures:
        book.write(pack(FAILED, attempt, 0, key, number, now()))
        raise ValueError("not yet")
    if plan.letter == "never" or (plan.letter and not os.path.exists(MENDED)):
        book.write(pack(DEAD, attempt, 0, key, number, now()))
        raise qbull.Fail(f"it cannot be done: {plan.letter}")
    book.write(pack(DONE, attempt, 0, key, number, now()))
