"""Workers: how many slots are busy and which jobs have run longest, even if more jobs run than are shown."""

from __future__ import annotations

import asyncio

from web import Person, Web, make_admin, make_viewer, open_web  # noqa: F401 - fixtures

import qbull
from qbull.api.workers import MAX_SHOWN_RUNNING_JOBS


async def test_busy_slots_and_the_longest_runs_count_all_running_jobs(app: qbull.App, viewer: Person) -> None:
    many = MAX_SHOWN_RUNNING_JOBS + 20
    bulk = app.queue("a-bulk", concurrency=many)
    old = app.queue("z-old", concurrency=2)
    started, go = asyncio.Semaphore(0), asyncio.Event()

    @bulk.task
    async def import_row(n: int) -> None:
        started.release()
        await go.wait()

    @old.task
    async def export() -> None:
        started.release()
        await go.wait()

    async with app.worker() as worker:
        first = await export.enqueue()
        await started.acquire()
        await import_row.enqueue_many([{"n": n} for n in range(many)])
        for _ in range(many):
            await started.acquire()
        running = await viewer.get("/api/running")
        [told] = (await viewer.get("/api/workers"))["workers"]
        go.set()
        await worker.drain()

    assert (running["total"], running["more"]) == (many + 1, True)
    assert len(running["jobs"]) == MAX_SHOWN_RUNNING_JOBS
    assert running["jobs"][0]["id"] == first.id, "the queue that comes last has the longest run"
    assert {name: serving["busy"] for name, serving in told["queues"].items()} == {"a-bulk": many, "z-old": 1}
