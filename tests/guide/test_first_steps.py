"""The example of the README: declare a queue and a task, enqueue a job, let a worker run it."""

from __future__ import annotations

import qbull


async def test_a_job_is_enqueued_and_run(app: qbull.App) -> None:
    email = app.queue("email")

    @email.task
    async def welcome(name: str) -> str:
        return f"Welcome, {name}!"

    job = await welcome.enqueue(name="Ada")
    async with app.worker():
        result = await job.result(timeout=10)

    assert result == "Welcome, Ada!"
    assert await job.state() == "completed"
