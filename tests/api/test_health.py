"""Health: each problem is found with real workers, and every reader of the list says the same."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from web import Person, Web, make_nobody, make_viewer, open_web  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.alerts.detect import ProblemWatcher
from qbull.api import context as api_context
from qbull.api import health as api_health
from qbull.cli.doctor.health import check_health
from qbull.core.alerts import Alerts
from qbull.core.health import HealthLimits
from qbull.core.sharing import Sharing, SharingMode
from qbull.embedded.server import EmbeddedServer
from qbull.store import clock
from qbull.store.read.inspect import counts, server_time
from qbull.store.store import Store
from qbull.store.verbs.alerts import read_known_problems
from qbull.worker.worker import Worker

Advance = Callable[[int], Awaitable[None]]
TO = Alerts(slack="https://hooks.slack.com/services/x")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is answered with the state of now."""
    monkeypatch.setattr(api_context, "HEALTH_CACHE_SECONDS", 0.0)
    monkeypatch.setattr(api_context, "METRICS_CACHE_SECONDS", 0.0)
    monkeypatch.setattr("qbull.api.overview.OVERVIEW_CACHE_SECONDS", 0.0)


@pytest.fixture(scope="session")
def server_url(server: EmbeddedServer) -> str:
    """A server whose clock can be moved."""
    return f"unix://:{server.password}@{server.socket}?db=0&test_clock=1"


@pytest.fixture(name="advance")
async def move_clock(store: Store) -> AsyncIterator[Advance]:
    """`await advance(seconds)` lets time pass on the server."""
    yield lambda seconds: clock.advance_clock(store, seconds * 1000)
    await store.server.call("DEL", clock.CLOCK_SHIFT_KEY)


@asynccontextmanager
async def pod(app: qbull.App, sharing: Sharing) -> AsyncIterator[Worker]:
    worker = Worker(app._make_store, app._assignments(), sharing=sharing)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


class BlockedWorker:
    """A worker in a thread of its own, whose task blocks its event loop."""

    def __init__(self, url: str, sharing: SharingMode, slots: int) -> None:
        self._slots = slots
        self.blocked, self.go = threading.Event(), threading.Event()
        self._sharing = Sharing(sharing)
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def declare(self, app: qbull.App) -> qbull.Call[[int], Any]:
        @app.queue("mail", concurrency=self._slots).task
        async def send(n: int) -> None:
            self.blocked.set()
            self.go.wait(60)

        return send

    async def _main(self) -> None:
        async with qbull.App(self._url, prefix="test") as app:
            self.declare(app)
            async with pod(app, self._sharing):
                await asyncio.to_thread(self._stop.wait, 60)

    def __enter__(self) -> BlockedWorker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._stop.set()
        self._thread.join()


async def problems(nobody: Person, code: str) -> Any:
    """The problem of this kind with the status of the whole; None if there is none."""
    answer = await nobody.ask("GET", "/api/queues/health")
    told = answer.json()
    found = [one for one in told["problems"] if one["code"] == code]
    assert len(found) <= 1
    return (answer.status_code, told["status"], found[0]) if found else None


async def readers_agree(store: Store, nobody: Person, viewer: Person) -> set[tuple[str, str | None]]:
    """The problems as the health check lists them. All others must list the same."""
    health = (await nobody.ask("GET", "/api/queues/health")).json()
    listed = {(one["code"], one["queue"]) for one in health["problems"]}
    verdict = (await viewer.get("/api/overview"))["verdict"]
    assert (verdict["status"], ageless(verdict["message"])) == (health["status"], ageless(health["message"]))
    assert {(one["code"], one["queue"]) for one in verdict["problems"]} == listed
    metrics = (await viewer.client.get("/metrics")).text
    counted = re.findall(r'qbull_problems\{kind="(\w+)",severity="\w+",queue="([^"]*)"\} 1', metrics)
    assert {(kind, queue or None) for kind, queue in counted} == listed
    assert f'qbull_health{{status="{health["status"]}"}} 1' in metrics
    found = {(one.subject, one.fact, one.next_step) async for one in check_health(store)}
    for one in health["problems"]:
        assert ageless(one["text"]) in {ageless(f"{subject}: {fact}") for subject, fact, _ in found}
        assert one["remedy"] in {step for _, _, step in found}
    return listed


def ageless(text: str) -> str:
    """The text without ages: they differ from one look to the next."""
    return re.sub(r"\d+ s\b", "… s", text)


async def alerts(store: Store) -> set[tuple[str, str]]:
    """The alerts that are firing, after one check."""
    await ProblemWatcher(store, TO, "w").look()
    known = (await read_known_problems(store)).open.values()
    return {(one.problem.kind, one.problem.queue) for one in known if not one.over}


async def test_partitions_of_a_missing_pod_are_unread(
    app: qbull.App, store: Store, nobody: Person, viewer: Person, advance: Advance
) -> None:
    mail = app.queue("mail", partitions=4, alert=True)

    @mail.task
    async def send(n: int) -> None: ...

    await send.enqueue_many([{"n": n} for n in range(40)])
    async with pod(app, Sharing("static", None, 0, 2)):
        waiting = await eventually(lambda: _left_to_the_other_pod(store, mail))
        before = await nobody.ask("GET", "/api/queues/health")
        await advance(45)
        status, verdict, one = await problems(nobody, "unread")
        listed = await readers_agree(store, nobody, viewer)
        firing = await alerts(store)

    assert before.status_code == 200
    assert (status, verdict, one["severity"], one["serious"]) == (503, "unhealthy", "critical", True)
    assert (one["queue"], one["partitions"], one["values"]["jobs"]) == ("mail", [1, 3], waiting)
    assert one["text"] == f'queue "mail": {waiting} jobs wait in partitions 1, 3, and no worker reads them'
    assert 'start the missing worker; "qbull partitions mail"' in one["remedy"]
    assert one["since"] is not None
    assert listed == {("unread", "mail")} and firing == {("unread", "mail")}


async def _left_to_the_other_pod(store: Store, mail: qbull.Queue) -> int:
    """How many jobs wait, once the partitions of the pod that runs are empty."""
    left = [one.unfinished for one in await counts(await store.partitions(mail.settings))]
    return left[1] + left[3] if left[0] == left[2] == 0 else 0


async def test_a_queue_without_a_worker_is_unserved(
    app: qbull.App, store: Store, nobody: Person, viewer: Person, advance: Advance
) -> None:
    @app.queue("mail", alert=True).task
    async def send(n: int) -> None: ...

    await send.enqueue_many([{"n": n} for n in range(3)])
    assert (await nobody.ask("GET", "/api/queues/health")).status_code == 200, "a worker may be starting"
    await advance(20)

    status, _, one = await problems(nobody, "unserved")
    assert (status, one["text"]) == (503, 'queue "mail": 3 jobs wait and no worker serves it')
    assert one["remedy"] == 'run "qbull worker MODULE:APP --queues mail"'
    assert await readers_agree(store, nobody, viewer) == {("unserved", "mail")}
    assert await alerts(store) == {("unserved", "mail")}


@pytest.mark.parametrize(("sharing", "slots"), [("auto", 5), ("auto", 1), ("leased", 5)])
async def test_a_worker_whose_event_loop_is_blocked_reads_nothing(
    app: qbull.App,
    server_url: str,
    nobody: Person,
    viewer: Person,
    sharing: SharingMode,
    slots: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_health, "HealthLimits", lambda **given: HealthLimits(unread_after=1.0, **given))
    with BlockedWorker(server_url, sharing, slots) as worker:
        send = worker.declare(app)
        await send.enqueue(0)
        await asyncio.to_thread(worker.blocked.wait, 60)
        # The read that was under way takes some of these, and nobody takes the rest.
        await send.enqueue_many([{"n": n} for n in range(50)])
        await send.enqueue_many([{"n": n} for n in range(3)])

        status, _, one = await eventually(lambda: problems(nobody, "unread"))
        [shown] = (await viewer.get("/api/overview"))["verdict"]["problems"]
        worker.go.set()
        await eventually(lambda: _is_empty(app))
        healthy = await nobody.ask("GET", "/api/queues/health")

    assert (status, one["partitions"]) == (503, [0])
    assert "restart the worker that has stopped reading" in one["remedy"]
    assert one["worker"] is None, "anybody may ask for the health"
    assert shown["worker"]
    assert healthy.status_code == 200


async def _is_empty(app: qbull.App) -> bool:
    return (await app.queues["mail"].stats()).unfinished == 0


@pytest.mark.parametrize("sharing", ["auto", "leased"])
async def test_a_blocked_worker_in_another_program_is_shown_with_its_task(
    app: qbull.App, server_url: str, viewer: Person, sharing: SharingMode
) -> None:
    with BlockedWorker(server_url, sharing, slots=1) as worker:
        send = worker.declare(app)
        job = await send.enqueue(0)
        await asyncio.to_thread(worker.blocked.wait, 60)
        behind = await send.enqueue(1)

        [one] = await eventually(lambda: _blocked_workers(viewer))
        why = await job.why()
        waits = await behind.why()
        worker.go.set()
        await eventually(lambda: _no_blocked_worker(viewer))

    assert one["blocked"]["tasks"] == ["send"]
    assert one["blocked"]["since"] < one["timestamp"]
    assert [reason.code for reason in why.reasons] == ["running", "blocked"]
    assert f"the event loop of worker {one['id']} is blocked by send since " in str(why)
    assert waits.reasons[0].code == "blocked"


async def _blocked_workers(viewer: Person) -> list[Any]:
    told = await viewer.get("/api/workers")
    return [one | {"timestamp": told["timestamp"]} for one in told["workers"] if one["blocked"]]


async def _no_blocked_worker(viewer: Person) -> bool:
    return not await _blocked_workers(viewer)


async def test_a_queue_with_unreadable_settings_is_named_and_hides_no_other(
    app: qbull.App, store: Store, nobody: Person, viewer: Person, advance: Advance
) -> None:
    @app.queue("mail").task
    async def send(n: int) -> None: ...

    await send.enqueue(1)
    await store.register(qbull.config.QueueSettings("newer"), ["task"])
    name = store.names.settings("newer")
    declared = await store.server.call("HGET", name, "declared")
    await store.server.call("HSET", name, "declared", '{"partitions": "many"}')
    await advance(20)

    _, _, other = await problems(nobody, "unserved")
    status, _, one = await problems(nobody, "unreadable")
    listed = await readers_agree(store, nobody, viewer)
    away = await problems(nobody, "away")
    await store.server.call("HSET", name, "declared", declared)

    assert away is None and other["queue"] == "mail"
    assert (status, one["text"]) == (503, 'queue "newer": its settings on the server cannot be read')
    assert listed == {("unserved", "mail"), ("unreadable", "newer")}


async def test_a_busy_worker_is_not_blocked(app: qbull.App, nobody: Person, advance: Advance) -> None:
    mail = app.queue("mail", concurrency=1)
    started, go = asyncio.Event(), asyncio.Event()

    @mail.task
    async def send(n: int) -> None:
        started.set()
        await go.wait()

    async with app.worker() as worker:
        await send.enqueue_many([{"n": n} for n in range(30)])
        await started.wait()
        await advance(60)
        calm = await nobody.ask("GET", "/api/queues/health")
        await advance(300)
        status, _, one = await problems(nobody, "stale")
        go.set()
        await worker.drain()

    assert (calm.status_code, calm.json()["problems"]) == (200, [])
    assert status == 503 and "stale, its oldest waiting job could have run 36" in one["text"]


async def test_a_key_behind_a_job_that_fails_is_blocked(
    app: qbull.App, store: Store, nobody: Person, viewer: Person, advance: Advance
) -> None:
    mail = app.queue("mail", order="key", retry=qbull.Retry(delays=(3600,)), alert=True)

    @mail.task(key="{to}")
    async def send(to: str) -> None:
        if to == "+34600111222":
            raise ConnectionError("421 too busy")

    await send.enqueue_many([{"to": to} for to in ["+34600111222"] * 4 + ["ann"]])
    async with app.worker():
        await eventually(lambda: _delayed(mail))
        await advance(30)
        calm = (await nobody.get("/api/queues/health"))["problems"]
        await advance(351)
        status, verdict, one = await problems(nobody, "blocked")
        listed = await readers_agree(store, nobody, viewer)
        firing = await alerts(store)

    assert calm == []
    assert (status, verdict, one["severity"]) == (200, "degraded", "warning")
    assert one["fact"] == "1 key waits for the next attempt of a job that fails, 3 jobs wait behind"
    assert one["values"] == {"keys": 1, "jobs": 3}
    assert "600111222" not in str(one), "anybody may ask for the health"
    assert listed == {("blocked", "mail")} and firing == {("blocked", "mail")}


async def _delayed(queue: qbull.Queue) -> bool:
    counts = await queue.stats()
    return counts.delayed == 1 and counts.completed == 1


async def test_a_schedule_that_nobody_fires_is_overdue(
    app: qbull.App, store: Store, nobody: Person, viewer: Person, advance: Advance
) -> None:
    @app.queue("mail", alert=True).cron(every=60, name="digest", catch_up="skip")
    async def digest() -> None: ...

    async with app.worker():
        assert (await nobody.get("/api/queues/health"))["problems"] == []
    await advance(200)

    status, _, one = await problems(nobody, "overdue")
    assert (status, one["schedule"]) == (503, "digest")
    assert one["text"].startswith('schedule "digest": it has not run for 1')
    assert await readers_agree(store, nobody, viewer) == {("overdue", "mail")}
    assert await alerts(store) == {("overdue", "mail")}


async def test_an_alert_that_fires_is_in_the_verdict(
    app: qbull.App, store: Store, nobody: Person, viewer: Person
) -> None:
    mail = app.queue("mail", alert=True, retry=qbull.Retry(attempts=1))

    @mail.task
    async def send() -> None:
        raise ValueError("no mailbox for ann@example.com")

    await send.enqueue()
    async with app.worker() as worker:
        await worker.drain()
    await alerts(store)

    status, verdict, one = await problems(nobody, "failed")
    assert (status, verdict) == (200, "degraded")
    assert (one["text"], one["task"]) == ('queue "mail": 1 job failed permanently', "send")
    assert "ann@example.com" not in str(one)
    assert await readers_agree(store, nobody, viewer) == {("failed", "mail")}


async def test_a_failure_rate_far_above_the_usual_is_a_problem(
    app: qbull.App, store: Store, nobody: Person, viewer: Person, advance: Advance
) -> None:
    mail = app.queue("mail", retry=qbull.Retry(delays=(3600,)))
    works = True

    @mail.task
    async def send(n: int) -> None:
        if not works and n % 2:
            raise ConnectionError("421 too busy")

    async with app.worker():
        await send.enqueue_many([{"n": n} for n in range(100)])
        await eventually(lambda: _is_empty(app))
        await advance(600)
        calm = (await nobody.get("/api/queues/health"))["problems"]
        works = False
        await send.enqueue_many([{"n": n} for n in range(60)])
        await eventually(lambda: _has_failed(mail, 30))
        status, verdict, one = await problems(nobody, "failing")
        listed = await readers_agree(store, nobody, viewer)

    assert calm == []
    assert (status, verdict) == (200, "degraded")
    assert one["fact"] == "30 of 60 attempts failed in the last 5 minutes, usually 0%"
    assert listed == {("failing", "mail")}


async def _has_failed(queue: qbull.Queue, attempts: int) -> bool:
    return (await queue.stats()).delayed == attempts


async def test_a_pause_with_a_growing_backlog_is_a_warning(
    app: qbull.App, store: Store, nobody: Person, viewer: Person, advance: Advance
) -> None:
    mail = app.queue("mail")

    @mail.task
    async def send(n: int) -> None: ...

    await mail.pause()
    await send.enqueue_many([{"n": n} for n in range(3)])
    first = await problems(nobody, "paused")
    _, _, known = await problems(viewer, "paused")
    await advance(120)
    await send.enqueue_many([{"n": n} for n in range(4)])
    second = await problems(nobody, "paused")

    assert first[:2] == (200, "healthy") and first[2]["severity"] == "info"
    assert first[2]["text"] == 'queue "mail": paused, 3 jobs wait'
    assert first[2]["by"] is None, "anybody may ask for the health"
    assert known["by"] and known["since"] == first[2]["since"]
    assert second[:2] == (200, "degraded") and second[2]["severity"] == "warning"
    assert second[2]["fact"] == "paused, 7 jobs wait, 4 of them came in the last 5 minutes"
    assert second[2]["remedy"] == 'run "qbull resume mail"'
    assert await readers_agree(store, nobody, viewer) == {("paused", "mail")}


async def test_a_lost_worker_is_a_problem_until_it_is_replaced(
    app: qbull.App, store: Store, nobody: Person, viewer: Person, advance: Advance
) -> None:
    @app.queue("mail").task
    async def send(n: int) -> None: ...

    async with app.worker() as worker:
        registered = await eventually(lambda: _member(store, worker.id))
    assert (await nobody.get("/api/queues/health"))["problems"] == [], "it has stopped on purpose"
    # The same worker on a machine that vanishes: nobody stops it, and its heartbeats end.
    await store.register_worker("machine-1", registered, 60.0)
    await store.server.call("ZADD", store.names.workers, await _now_ms(store) - 5_000, "machine-1")
    _, _, silent = await problems(nobody, "lost")
    await store.forget_worker("machine-1", lost=True)
    status, verdict, one = await problems(nobody, "lost")
    listed = await readers_agree(store, nobody, viewer)
    [shown] = (await viewer.get("/api/overview"))["verdict"]["problems"]
    await advance(60)
    still = await problems(nobody, "lost")
    async with app.worker():
        await eventually(lambda: _nothing(nobody))

    assert (silent["text"], silent["since"]) == (one["text"], one["since"])
    assert still is not None and still[2]["since"] == one["since"]
    assert (status, verdict) == (200, "degraded")
    assert (one["text"], one["worker"]) == ("workers: 1 worker was lost and not replaced", None)
    assert shown["worker"] == "machine-1"
    assert listed == {("lost", None)}


async def _now_ms(store: Store) -> int:
    return int(await server_time(store) * 1000)


async def _member(store: Store, id: str) -> Any:
    member = (await store.workers()).get(id)
    return member if member is not None and member.queues["mail"].since else None


async def _nothing(nobody: Person) -> bool:
    return not (await nobody.get("/api/queues/health"))["problems"]
