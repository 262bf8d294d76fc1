"""A job has one public shape: Python, the REST API and the command line show the same fields with the same values."""

from __future__ import annotations

import asyncio

from shell import Shell, open_shell  # noqa: F401 - a fixture
from web import ADMIN, opened

import qbull
from conftest import eventually
from qbull.views.shape import to_plain
from qbull.views.steps import step_view


async def test_python_rest_and_command_line_show_the_same_job(shell: Shell, app: qbull.App) -> None:
    email = app.queue("email", retry=qbull.Retry(delays=(0.01,)), order="key")

    @email.task(key="{to}")
    async def send(to: str) -> None:
        await qbull.current_job().progress(2, 5, "asking")
        raise ValueError(f"no mailbox for {to}")

    enqueued = await send.options(priority=2, timeout=5, expires=600).enqueue("ada")
    async with app.worker() as worker:
        await worker.drain()

    info = await enqueued.info()
    async with opened(app) as web:
        rest = await (await web.person(ADMIN)).get(f"/api/queues/email/jobs/{enqueued.id}")
    printed = await asyncio.to_thread(shell.json, "job", "email", enqueued.id)

    assert info is not None
    assert to_plain(info) == rest == printed
    unset = {name for name, value in rest.items() if value is None}
    assert unset == {"result", "dueAt", "schedule", "flow", "suspended", "forkedFrom"}
    assert (rest["progress"], rest["progressDone"], rest["progressTotal"], rest["progressNote"]) == (
        40,
        2,
        5,
        "asking",
    )
    assert rest["history"][0]["error"] == "ValueError: no mailbox for ada"


async def test_python_rest_and_command_line_show_the_same_steps(shell: Shell, app: qbull.App) -> None:
    async def charge(order: int) -> str:
        return f"payment\x1b[2J-{order}"

    @app.queue("orders").task(durable=True)
    async def fulfil(order: int) -> None:
        await qbull.current_job().step(charge, order)
        await qbull.current_job().wait_for("approval", timeout=3600)

    async def waits() -> bool:
        return [step.state for step in await job.steps()] == ["completed", "waiting"]

    job = await fulfil.enqueue(7)
    async with app.worker():
        await eventually(waits)

    recorded = [to_plain(step_view(step)) for step in await job.steps()]
    async with opened(app) as web:
        rest = await (await web.person(ADMIN)).get(f"/api/queues/orders/jobs/{job.id}/steps")
    printed = await asyncio.to_thread(shell.json, "job", "orders", job.id, "--steps")
    table = await asyncio.to_thread(shell.ok, "job", "orders", job.id, "--steps")

    assert recorded == rest["steps"] == printed
    assert [step["state"] for step in printed] == ["completed", "waiting"]
    assert "wait_for approval" in table and f"waiting until {printed[1]['until']}" in table
    assert "payment" in table and "\x1b" not in table
