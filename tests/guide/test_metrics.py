"""Metrics: how the queues are, for Prometheus and by the minute."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import qbull
from conftest import eventually

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "metrics.md"
TOKEN = "a-token-that-only-prometheus-knows"


@pytest.fixture(name="client")
async def open_client(app: qbull.App) -> AsyncIterator[httpx.AsyncClient]:
    api = qbull.asgi(app, qbull.Access(viewer_token=TOKEN))
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api), base_url="http://localhost", headers=headers
    ) as client:
        yield client
    await api.close()


async def test_what_ran_is_counted(app: qbull.App, client: httpx.AsyncClient) -> None:
    email = app.queue("email")

    @email.task
    async def verify(user_id: str) -> None: ...

    await verify.enqueue_many([{"user_id": f"u{n}"} for n in range(3)])
    async with app.worker() as worker:
        await worker.drain()
    await verify.enqueue("u4")

    lines = (await client.get("/metrics")).text.splitlines()
    minutes = (await client.get("/api/queues/email/metrics", params={"minutes": 2})).json()["minutes"]

    assert 'qbull_queue_jobs{queue="email",state="waiting"} 1' in lines
    assert 'qbull_jobs_completed_total{queue="email"} 3' in lines
    assert 'qbull_job_duration_seconds_count{queue="email",task="verify"} 3' in lines
    assert sum(minute["completed"] for minute in minutes) == 3


async def test_a_token_is_needed_unless_it_is_said_otherwise(
    app: qbull.App, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/metrics", headers={"authorization": ""})).status_code == 401

    api = qbull.asgi(app, qbull.Access(public_metrics=True))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost") as anybody:
        assert (await anybody.get("/metrics")).status_code == 200
        assert (await anybody.get("/api/queues/stats")).status_code == 401
    await api.close()


async def test_the_page_names_every_metric_and_no_other(app: qbull.App, client: httpx.AsyncClient) -> None:
    email = app.queue("email")
    provider = qbull.Limit("provider", rate=qbull.Rate(1, per=3600), concurrency=20, daily=1_000)

    @email.task(limit=provider)
    async def verify() -> None: ...

    first, limited = await verify.enqueue(), await verify.enqueue()
    async with app.worker():
        await first.result(timeout=20)
        await eventually(lambda: _waits_for_limit(limited))
    # A problem, so that `qbull_problems` has a sample.
    await email.pause()
    job = await verify.enqueue()

    api = qbull.asgi(app, qbull.Access(viewer_token=TOKEN))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api), base_url="http://localhost", headers=client.headers
    ) as other:
        await other.get("/api/queues/stats")
        told = set(re.findall(r"# TYPE (\w+)", (await other.get("/metrics")).text))
    await api.close()
    await job.cancel()
    await limited.cancel()

    assert told == set(re.findall(r"`(qbull_\w+)`", PAGE.read_text()))


async def _waits_for_limit(job: qbull.Job[None]) -> bool:
    return (await job.why()).reasons[0].code == "shared-limit"
