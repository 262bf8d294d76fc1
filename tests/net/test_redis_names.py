"""The keys that qbull uses on a server, their types, and the messages of its channels are as recorded.

The test uses almost every feature once and reads the keys off the server. It does not see `mark`, `truce` and
`losses`, which need a replica, an outage or a lost worker.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import httpx
import pytest
from goldens import compare
from redis_traffic import Traffic, recorded

import qbull
from conftest import eventually

ACCESS = qbull.Access(password="a password for tests", admin_token="an administrator's token")


class SampleApp:
    """Queues of each kind, with tasks that complete, fail, or run until they are stopped."""

    def __init__(self, app: qbull.App) -> None:
        once = qbull.Retry(attempts=2, backoff="fixed", delay=0)
        self.app = app
        self.plain = app.queue("plain", partitions=2, retry=once, alert=True)
        self.ordered = app.queue("ordered", partitions=2, order="key")
        self.limited = app.queue(
            "limited", max_active=1, rate=qbull.Rate(1000), lane=qbull.Lane(limit=2, rate=qbull.Rate(1000))
        )
        self.tracked = app.queue("tracked", track=True)
        self.running, self.stepping, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @self.plain.task
        async def say(text: str, times: int = 1) -> str:
            await qbull.current_job().progress(0.5)
            await qbull.current_job().log(text)
            return text * times

        @self.plain.task
        async def fail() -> None:
            raise ValueError("no")

        @self.plain.task
        async def run_on() -> None:
            self.running.set()
            await asyncio.Event().wait()

        @self.ordered.task(key="{key}")
        async def step(key: str, number: int = 0) -> None:
            if key == "slow":
                self.stepping.set()
                await self.may_end.wait()

        @self.limited.task(key="{key}")
        async def send(key: str, rest: bool = False) -> None:
            if rest and qbull.current_job().attempt == 1:
                raise qbull.RetryAfter(0.01, "slowly", queue=True)

        @self.tracked.task
        async def note() -> None: ...

        @self.plain.cron("0 4 1 1 *")
        async def yearly() -> None: ...

        self.say, self.fail, self.run_on, self.step = say, fail, run_on, step
        self.send, self.note, self.yearly = send, note, yearly


@pytest.fixture(name="sample_app")
def make_sample_app(server_url: str, app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> SampleApp:
    monkeypatch.setenv("QBULL_SHARING", "leased")
    return SampleApp(
        qbull.App(server_url, prefix=app.prefix, alerts=qbull.Alerts(urls=("http://127.0.0.1:9/",)))
    )


async def test_redis_names_are_as_recorded(sample_app: SampleApp, server_url: str) -> None:
    async with recorded(server_url, sample_app.app.prefix) as traffic:
        await enqueue_before_work(sample_app)
        async with sample_app.app.worker() as worker:
            await change_jobs_and_settings(sample_app)
            await repartition_during_a_job(sample_app, traffic)
            await use_the_api(sample_app)
            await worker.drain()
            await eventually(lambda: _is_seen(traffic, "alerts hash"))
            await leave_a_job_behind(sample_app)
            await worker.stop(grace=0)
        await sample_app.app.close()

    compare("redis_names.txt", "\n".join([*sorted(traffic.names), "", *sorted(traffic.messages)]))


async def _is_seen(traffic: Traffic, short: str) -> bool:
    return any(name.endswith(f":{short}") for name in traffic.names)


async def enqueue_before_work(sample_app: SampleApp) -> None:
    """Enqueue jobs of each kind, and change the partitions of a queue, before the worker starts."""
    await sample_app.say.enqueue("a")
    await sample_app.say.options(priority=1).enqueue("first")
    await sample_app.say.options(priority=10).enqueue("last")
    await sample_app.say.options(delay=0.01, expires=600).enqueue("later")
    await sample_app.say.options(unique=qbull.Unique(window=60)).enqueue("once")
    await sample_app.fail.enqueue()
    await sample_app.step.enqueue_many([{"key": "k", "number": n} for n in range(5)])
    await sample_app.step.options(delay=0.01).enqueue_many([{"key": str(n)} for n in range(9)])
    await sample_app.send.enqueue("tenant", rest=True)
    await sample_app.note.enqueue()
    await qbull.chain(
        qbull.group(sample_app.say.step("x"), sample_app.note.step(), sample_app.say.step("y")),
        sample_app.step.step("z"),
    ).enqueue()
    await sample_app.ordered.repartition(3)
    await sample_app.step.enqueue_many([{"key": "k", "number": n} for n in range(5, 8)])


async def change_jobs_and_settings(sample_app: SampleApp) -> None:
    """Wait for results, cancel, promote, retry, pause, configure and schedule while a worker runs."""
    assert await (await sample_app.say.enqueue("again")).result(20) == "again"
    running = await sample_app.run_on.enqueue()
    await asyncio.wait_for(sample_app.running.wait(), 20)
    await running.cancel()
    with pytest.raises(qbull.JobCancelled):
        await running.result(20)
    later = await sample_app.say.options(delay=600).enqueue("now")
    await later.promote()
    failed = await sample_app.fail.enqueue()
    with pytest.raises(qbull.JobFailed):
        await failed.result(20)
    await failed.retry()
    await sample_app.limited.pause()
    await sample_app.limited.resume()
    await sample_app.limited.configure(concurrency=3)
    await sample_app.app.schedules.upsert("often", sample_app.say, every=60, args={"text": "tick"})
    await (await sample_app.app.schedules.run("often")).result(20)


async def repartition_during_a_job(sample_app: SampleApp, traffic: Traffic) -> None:
    """Change the partitions while a job runs; the next job of its key waits in a new partition."""
    await sample_app.step.enqueue("slow")
    await asyncio.wait_for(sample_app.stepping.wait(), 20)
    await sample_app.ordered.repartition(4)
    await sample_app.step.enqueue("slow")
    await eventually(lambda: _is_seen(traffic, "ahead set"))
    sample_app.may_end.set()


async def leave_a_job_behind(sample_app: SampleApp) -> None:
    """Start a job that the worker requeues when it stops."""
    sample_app.running.clear()
    await sample_app.run_on.enqueue()
    await asyncio.wait_for(sample_app.running.wait(), 20)


async def use_the_api(sample_app: SampleApp) -> None:
    """Log in, with a wrong password first; make a token and use it; start work on many jobs and stop it."""
    api = qbull.asgi(sample_app.app, ACCESS)
    async with AsyncExitStack() as stack:
        nobody, admin = [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(api), base_url="http://127.0.0.1", headers=headers
                )
            )
            for headers in ({}, {"authorization": f"Bearer {ACCESS.admin_token}"})
        ]
        for password in ("wrong", ACCESS.password):
            await nobody.post("/api/login", json={"password": password})
        made = (await admin.post("/api/tokens", json={"name": "ci", "role": "viewer"})).json()
        await nobody.get("/api/queues/stats", headers={"authorization": f"Bearer {made['token']}"})
        started = await admin.post(
            "/api/queues/plain/operations", json={"action": "retry", "state": "failed"}
        )
        await admin.post(f"/api/operations/{started.json()['operationId']}/stop")
        await nobody.get("/api/tokens", headers={"authorization": "Bearer nobody"})
