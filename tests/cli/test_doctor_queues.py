"""Each line that doctor says of queues, workers, schedules and alerts, from a real server in that state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from own import open_own  # noqa: F401 - a fixture

import qbull
from conftest import eventually
from qbull.cli.doctor import queues
from qbull.cli.doctor.alerts import check_alerts
from qbull.cli.doctor.health import check_health
from qbull.cli.doctor.schedules import check_schedules
from qbull.store.store import Store
from qbull.store.verbs.workers import RegisteredWorker, ServedQueue


@pytest.fixture
async def app(own: str) -> AsyncIterator[qbull.App]:
    async with qbull.App(own, prefix="test") as app:
        yield app


@pytest.fixture
async def store(app: qbull.App) -> Store:
    return app._client().store


async def said_of_queue(store: Store, name: str) -> str:
    steps: list[str] = []
    lines = [finding.line async for finding in queues.check_queue(store, name, steps.append)]
    return "\n".join([*steps, *lines])


async def said_of_health(store: Store) -> str:
    return "\n".join([finding.line async for finding in check_health(store)])


async def said_of_workers(store: Store) -> str:
    return "\n".join([finding.line async for finding in queues.check_workers(store)])


async def said_of_schedules(app: qbull.App) -> str:
    return "\n".join([finding.line async for finding in check_schedules(app.schedules, app._client().store)])


async def said_of_alerts(app: qbull.App) -> str:
    return "\n".join([finding.line async for finding in check_alerts(app.alerts, app._client().store)])


async def nothing() -> None: ...


async def test_more_faults_than_are_worth_a_line(app: qbull.App, store: Store) -> None:
    task = app.queue("email").task(nothing)
    await task.options(delay=60).enqueue_many([{}] * 25)
    await store.server.call("DEL", store.names.partition("email", 0) + "delayed")

    lines = await said_of_queue(store, "email")

    assert lines.count("keep a copy of the server's data and report this") == queues.MAX_SHOWN_FAULTS
    assert 'problem  queue "email": 5 more faults of this kind; see above' in lines


async def test_a_long_look_and_a_job_that_waits_long(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MAX_CHECKED_JOBS", 1)
    begun, go = asyncio.Event(), asyncio.Event()
    queue = app.queue("slow", concurrency=1, alert=qbull.Alert(stale_after=1))

    @queue.task
    async def wait() -> None:
        begun.set()
        await go.wait()

    async with app.worker() as worker:
        await wait.enqueue_many([{}] * 3)
        await begun.wait()
        lines = await said_of_queue(store, "slow")
        health = await eventually(lambda: said_of_health(store))
        go.set()
        await worker.drain()

    assert 'queue "slow": checking the 3 jobs of partition 0 …' in lines
    assert 'problem  queue "slow": stale, its oldest waiting job could have run 1 s ago' in health
    assert "add worker processes or concurrency" in health


async def test_keys_of_old_partitions_that_are_halted(app: qbull.App, store: Store) -> None:
    queue = app.queue("pay", partitions=2, order="key", on_failed="halt", retry=qbull.Retry(attempts=1))

    @queue.task(key="{account}")
    async def charge(account: str) -> None:
        raise TimeoutError("the bank does not answer")

    await charge.enqueue("ann")
    async with app.worker() as worker:
        await worker.drain()
        await queue.repartition(5)
        lines = await eventually(lambda: _has(store, "pay", "halted by a dead letter"))

    assert (
        'note     queue "pay": 1 keys of the old 2 partitions are halted by a dead letter; '
        'see "qbull partitions pay", then retry or remove it'
    ) in lines


async def _has(store: Store, queue: str, words: str) -> str:
    lines = await said_of_queue(store, queue)
    return lines if words in lines else ""


async def test_a_silent_worker_beside_one_that_lives(app: qbull.App, store: Store) -> None:
    app.queue("email").task(nothing)
    await store.register_worker(
        "alive", RegisteredWorker("here", 1, "alive", {"email": ServedQueue(5)}), 30.0
    )
    await store.server.call("ZADD", store.names.workers, 1, "ghost")

    lines = await said_of_workers(store)

    assert "ok       workers: 1 alive" in lines
    assert (
        "note     workers: ghost sends no heartbeats any more; another worker will reclaim its jobs" in lines
    )


async def test_workers_that_cannot_be_read(app: qbull.App, store: Store) -> None:
    await store.server.call("SET", store.names.workers, "not ours")

    lines = await said_of_workers(store)

    assert lines.startswith("problem  workers: ") and lines.endswith("see the checks of the server above")


async def test_a_schedule_that_nobody_serves_and_one_that_has_missed_ticks(app: qbull.App) -> None:
    task = app.queue("email").task(nothing)
    began = datetime.now(UTC)
    await app.schedules.upsert("often", task, every=0.1, catch_up="skip")
    await eventually(lambda: _passed(began, 0.5))
    async with app.worker():
        await eventually(lambda: _missed(app))
        served = await said_of_schedules(app)
    alone = await said_of_schedules(app)

    assert "of its runs were missed; see catch_up" in served and 'it has catch_up="skip"' in served
    assert 'note     schedule "often": no worker serves queue "email"' in alone
    assert 'run "qbull worker MODULE:APP --queues email", or "qbull schedules remove often"' in alone


async def _passed(began: datetime, seconds: float) -> bool:
    return (datetime.now(UTC) - began).total_seconds() > seconds


async def _missed(app: qbull.App) -> bool:
    return (await app.schedules.get("often")).missed > 0


async def test_a_schedule_whose_plan_is_gone(app: qbull.App, store: Store) -> None:
    task = app.queue("email").task(nothing)
    await app.schedules.upsert("nightly", task, cron="0 3 * * *")
    await store.server.call("DEL", store.names.schedules)

    lines = await said_of_schedules(app)

    assert 'problem  schedule "nightly": the registry says no queue' in lines
    assert 'run "qbull schedules remove nightly" and create it again' in lines


async def test_schedules_that_cannot_be_read(app: qbull.App, store: Store) -> None:
    await store.server.call("SET", store.names.schedules, "not ours")

    lines = await said_of_schedules(app)

    assert lines.startswith("problem  schedules: ") and lines.endswith("see the checks of the queues above")


@pytest.mark.parametrize(
    ("urls", "asks", "line"),
    [
        (
            "https://example.com/hook",
            True,
            "note     alerts: messages to webhooks are not signed; set QBULL_ALERT_SECRET",
        ),
        (
            "https://example.com/hook",
            False,
            "note     alerts: no queue has alerts; only lost workers are reported",
        ),
        (
            "https://example.com/hook",
            True,
            'ok       alerts: those of queue "email" go to webhook (example.com)',
        ),
        ("", False, ""),
    ],
)
async def test_where_alerts_go(
    own: str, monkeypatch: pytest.MonkeyPatch, urls: str, asks: bool, line: str
) -> None:
    if urls:
        monkeypatch.setenv("QBULL_ALERT_URLS", urls)
    async with qbull.App(own, prefix="test") as app:
        app.queue("email", alert=asks).task(nothing)
        async with app.worker():
            lines = await said_of_alerts(app)

    assert line in lines
    assert urls or lines == ""


async def test_alerts_that_do_not_arrive_and_what_is_wrong(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBULL_ALERT_URLS", "http://127.0.0.1:1/hook")  # refused: it is an internal address
    async with qbull.App(own, prefix="test") as app:
        queue = app.queue("email", alert=True, retry=qbull.Retry(attempts=1))

        @queue.task
        async def fail() -> None:
            raise ValueError("no mailbox")

        async with app.worker():
            await fail.enqueue()
            lines = await eventually(lambda: _not_sent(app), within=30)
            health = await said_of_health(app._client().store)

    assert "note     alerts: some were not sent, the last one because of: " in lines
    assert 'run "qbull alerts test", then "qbull clean ' in lines
    assert 'note     queue "email": 1 job failed permanently; see "qbull jobs email --state failed"' in health


async def _not_sent(app: qbull.App) -> str:
    lines = await said_of_alerts(app)
    return lines if "were not sent" in lines else ""
