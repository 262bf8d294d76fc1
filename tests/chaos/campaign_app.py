"""The app of a campaign: what its worker processes serve, and its producers enqueue. Everything is written down.

work       jobs of many keys, in order; some fail, some are slow, some become dead letters
same       each id is enqueued by every producer at once
bells      schedules that tick every second
transfers  money moves through the outbox and the inbox of PostgreSQL, where there is one
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from pathlib import Path

from history import BEGUN, DEAD, DONE, FAILED, RUN, Book
from job_plan import ATTEMPTS, plan_of

import qbull

HERE = Path(os.environ.get("CHAOS_DIRECTORY") or ".")
DATABASE = os.environ.get("CHAOS_DATABASE")
PARTITIONS = int(os.environ.get("CHAOS_PARTITIONS", "8"))
BELLS = int(os.environ.get("CHAOS_BELLS", "20"))
WORK, SAME, BELL = 0, 1, 2
"""Where a record is from."""
MENDED = str(HERE / "mended")
"""There while the other system, that some jobs need, is back."""

app = qbull.App(
    os.environ.get("CHAOS_URL") or "redis://127.0.0.1:1/0",
    prefix="test",
    durability=os.environ.get("CHAOS_DURABILITY") or None,
    database=DATABASE,
)
retry = qbull.Retry(attempts=ATTEMPTS, backoff="fixed", delay=0.02)
keep = qbull.Keep(completed=20_000, failed=1_000_000)
work = app.queue(
    "work", order="key", partitions=PARTITIONS, concurrency=10, retry=retry, keep=keep, alert=False
)
same = app.queue(
    "same", partitions=2, concurrency=5, retry=retry, keep=qbull.Keep(completed=1_000_000), alert=False
)
bells = app.queue(
    "bells", partitions=4, concurrency=5, retry=retry, keep=qbull.Keep(completed=1_000_000), alert=False
)
book = Book(HERE / f"{os.getpid()}-{time.monotonic_ns()}.runs")
pack, now = RUN.pack, time.monotonic_ns


@work.task(key="{key}", id="{key}:{number}")
async def step(key: int, number: int) -> None:
    plan = plan_of(key, number)
    attempt = qbull.current_job().attempt
    book.write(pack(BEGUN, attempt, WORK, key, number, now()))
    if plan.seconds:
        await asyncio.sleep(plan.seconds)
    if attempt <= plan.failures:
        book.write(pack(FAILED, attempt, WORK, key, number, now()))
        raise ValueError("not yet")
    if plan.letter == "never" or (plan.letter and not os.path.exists(MENDED)):
        book.write(pack(DEAD, attempt, WORK, key, number, now()))
        raise qbull.Fail(f"it cannot be done: {plan.letter}")
    book.write(pack(DONE, attempt, WORK, key, number, now()))


@same.task(id="same-{number}")
async def once(number: int) -> None:
    attempt = qbull.current_job().attempt
    book.write(pack(BEGUN, attempt, SAME, 0, number, now()))
    book.write(pack(DONE, attempt, SAME, 0, number, now()))


@bells.task
async def ring(bell: int) -> None:
    job = qbull.current_job()
    assert job.planned_at is not None
    mark = zlib.crc32(job.id.encode()) & 0xFFFFFF  # two jobs for one tick would be seen
    book.write(pack(DONE, job.attempt, BELL, mark << 8 | bell, int(job.planned_at.timestamp()), now()))


for number in range(BELLS):
    if number % 2:
        bells.cron(every=1, name=f"bell-{number}", args={"bell": number}, catch_up="all")(ring)
    else:
        bells.cron("* * * * * *", name=f"bell-{number}", args={"bell": number}, catch_up="all")(ring)

if DATABASE:
    from loads import transfers

    transfer = transfers.declare(app, DATABASE)
