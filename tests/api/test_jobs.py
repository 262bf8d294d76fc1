"""Jobs through the API: found, asked about, and dealt with one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from web import ADMIN, VIEWER, Person, Web, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.api import operations

FIELDS = [
    "id", "queue", "task", "state", "key", "priority", "payload", "result", "error", "stacktrace", "failedReason", "attempt", "maxAttempts",
    "progress", "progressDone", "progressTotal", "progressNote", "createdAt", "dueAt", "expiresAt", "startedAt", "finishedAt", "durationMs", "timeout", "partition", "worker", "crashes",
    "history", "schedule", "flow", "suspended", "waitsFor", "forkedFrom", "continued",
]  # fmt: skip


class OrdersApp:
    def __init__(self, app: qbull.App, **settings: Any) -> None:
        self.app = app
        self.orders = app.queue("orders", retry=qbull.Retry(attempts=1), **settings)
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

        @self.orders.task(key="{customer}")
        async def ship(customer: str, items: list[dict[str, int]] | None = None, fail: str = "") -> str:
            job = qbull.current_job()
            await job.log(f"shipping to {customer}")
            await job.progress(50)
            if fail:
                raise ValueError(fail)
            return f"shipped to {customer}"

        @self.orders.task
        async def wait() -> None:
            self.begun.set()
            await self.let_go.wait()

        self.ship, self.wait = ship, wait

    async def drain(self) -> None:
        async with self.app.worker() as worker:
            await worker.drain()


@pytest.fixture(name="orders_app")
def make_orders_app(app: qbull.App) -> OrdersApp:
    return OrdersApp(app, order="key", partitions=2)


async def test_a_job_in_json_has_exactly_these_names(orders_app: OrdersApp, viewer: Person) -> None:
    job = await orders_app.ship.enqueue("ada")
    await orders_app.drain()

    shown = await viewer.get(f"/api/queues/orders/jobs/{job.id}")

    assert list(shown) == FIELDS
    assert (shown["state"], shown["result"], shown["progress"]) == ("completed", "shipped to ada", 50)


async def test_enqueue_answers_with_where_to_ask(orders_app: OrdersApp, admin: Person) -> None:
    asked = await admin.ask(
        "POST", "/api/queues/orders/jobs", {"task": "ship", "payload": {"customer": "ada"}}
    )

    assert asked.status_code == 202
    assert asked.json().keys() >= {"success", "jobId", "status", "timestamp"}
    shown = await admin.get(asked.headers["location"])
    assert (shown["id"], shown["key"], shown["state"]) == (asked.json()["jobId"], "ada", "waiting")


@pytest.mark.parametrize("id", ["a/b", "100%", "ü ?#&=+", "...", "a\\b", "%2F", "{id}"])
async def test_an_id_may_be_anything_printable(orders_app: OrdersApp, admin: Person, id: str) -> None:
    asked = await admin.ask(
        "POST",
        "/api/queues/orders/jobs",
        {"task": "ship", "payload": {"customer": "a"}, "options": {"id": id}},
    )

    where = asked.headers["location"]
    assert (await admin.get(where))["id"] == id
    assert (await admin.get(f"{where}/why"))["jobId"] == id
    assert (await admin.delete(where))["status"] == "removed"


async def test_what_is_not_there_is_not_found(orders_app: OrdersApp, admin: Person) -> None:
    await admin.refused(404, "GET", "/api/queues/nothing/stats")
    await admin.refused(404, "GET", "/api/queues/orders/jobs/nothing")
    await admin.refused(404, "POST", "/api/queues/orders/jobs/nothing/retry")
    await admin.refused(404, "DELETE", "/api/queues/orders/jobs/nothing")
    await admin.refused(404, "GET", "/api/queues/orders/jobs/nothing/logs")
    assert "ship" in await admin.refused(404, "POST", "/api/queues/orders/jobs", {"task": "nothing"})
    await admin.refused(404, "GET", "/api/queues/%7Borders%7D/stats")


async def test_an_id_that_is_taken_is_answered_with_the_state_of_its_job(
    orders_app: OrdersApp, admin: Person
) -> None:
    call = {"task": "ship", "payload": {"customer": "ada"}, "options": {"id": "once"}}
    first = await admin.post("/api/queues/orders/jobs", call)
    await admin.post("/api/queues/orders/jobs/once/cancel")

    again = await admin.post("/api/queues/orders/jobs", call)

    assert (first["status"], first["created"]) == ("waiting", True)
    assert (again["status"], again["created"]) == ("cancelled", False)


async def test_only_one_call_of_a_window_counts(orders_app: OrdersApp, admin: Person) -> None:
    call = {"task": "ship", "payload": {"customer": "ada"}}
    window = {"window": 60, "by": ["customer"]}

    first = await admin.post("/api/queues/orders/jobs", call | {"options": {"unique": window}})
    again = await admin.post("/api/queues/orders/jobs", call | {"options": {"unique": window}})
    other = await admin.post("/api/queues/orders/jobs", call | {"options": {"unique": 60}})

    assert (again["jobId"], again["created"]) == (first["jobId"], False)
    assert other["created"]
    for wrong in ({"mode": "last"}, {"window": 60, "by": ["colour"]}):
        said = call | {"options": {"unique": wrong}}
        assert "nique" in await admin.refused(400, "POST", "/api/queues/orders/jobs", said)


async def test_a_failed_job_is_retried_with_other_arguments(orders_app: OrdersApp, admin: Person) -> None:
    job = await orders_app.ship.enqueue("ada", fail="no stamps")
    await orders_app.drain()
    path = f"/api/queues/orders/jobs/{job.id}"

    wrong = await admin.refused(400, "POST", f"{path}/retry", {"payload": {"customer": 5}})
    await admin.post(f"{path}/retry", {"payload": {"customer": "ada", "fail": ""}})
    await orders_app.drain()

    assert "customer" in wrong
    assert (await admin.get(path))["result"] == "shipped to ada"
    runs = (await admin.get(f"{path}/history"))["attempts"]
    assert [run["error"] for run in runs] == ["ValueError: no stamps", None]


async def test_a_waiting_job_is_rescheduled_and_updated(orders_app: OrdersApp, admin: Person) -> None:
    job = await orders_app.ship.enqueue("ada")
    path = f"/api/queues/orders/jobs/{job.id}"

    later = await admin.post(f"{path}/reschedule", {"delay": 3600})
    changed = await admin.post(f"{path}/update", {"payload": {"customer": "ada", "fail": "no stamps"}})
    at = await admin.post(f"{path}/reschedule", {"at": "2030-01-31T12:00:00Z"})
    shown = await admin.get(path)
    now = await admin.post(f"{path}/reschedule", {"delay": 0})

    assert [one["status"] for one in (later, changed, at, now)] == ["delayed"] * 3 + ["waiting"]
    assert (shown["dueAt"], shown["payload"]["fail"]) == ("2030-01-31T12:00:00.000Z", "no stamps")
    assert "one of them" in await admin.refused(400, "POST", f"{path}/reschedule", {})
    await admin.refused(400, "POST", f"{path}/reschedule", {"at": "soon"})
    assert "customer" in await admin.refused(400, "POST", f"{path}/update", {"payload": {"customer": 5}})
    await orders_app.drain()
    assert "has failed" in await admin.refused(409, "POST", f"{path}/reschedule", {"delay": 5})
    await admin.refused(404, "POST", "/api/queues/orders/jobs/nothing/update", {"payload": {}})


async def test_what_a_task_logs_is_read(orders_app: OrdersApp, viewer: Person) -> None:
    job = await orders_app.ship.enqueue("ada")
    await orders_app.drain()

    logs = (await viewer.get(f"/api/queues/orders/jobs/{job.id}/logs"))["logs"]

    assert [(line["text"], line["attempt"]) for line in logs] == [("shipping to ada", 1)]


async def test_a_delayed_job_is_promoted_and_others_are_refused(orders_app: OrdersApp, admin: Person) -> None:
    job = await orders_app.ship.options(delay=600).enqueue("ada")
    path = f"/api/queues/orders/jobs/{job.id}"

    assert (await admin.post(f"{path}/promote"))["status"] == "waiting"
    assert "waiting already" in await admin.refused(409, "POST", f"{path}/promote")
    await admin.refused(409, "POST", f"{path}/retry")


async def test_a_signal_is_sent_to_a_durable_job(
    orders_app: OrdersApp, admin: Person, viewer: Person
) -> None:
    @orders_app.app.queue("approvals").task(durable=True)
    async def approve() -> dict[str, str]:
        job = qbull.current_job()
        await job.wait_for("approval")
        return await job.wait_for("approval", type=dict[str, str])

    job = await approve.enqueue()
    path = f"/api/queues/approvals/jobs/{job.id}"
    async with orders_app.app.worker(["approvals"]):
        await eventually(lambda: is_suspended(viewer, path))
        assert (await viewer.get(path))["waitsFor"] == ["approval"]
        await viewer.refused(403, "POST", f"{path}/signal", {"name": "approval"})
        for _ in range(2):
            sent = await admin.post(f"{path}/signal", {"name": "approval", "id": "hook-1"})
            assert sent["status"] == "sent"
        await admin.post(f"{path}/signal", {"name": "approval", "value": {"by": "ada"}})
        assert await job.result(timeout=20) == {"by": "ada"}

    assert "has completed" in await admin.refused(409, "POST", f"{path}/signal", {"name": "approval"})
    await admin.refused(404, "POST", "/api/queues/approvals/jobs/nobody/signal", {"name": "approval"})
    await admin.refused(400, "POST", f"{path}/signal", {"name": ""})
    audited = (await admin.get("/api/audit"))["entries"]
    assert [one["action"] for one in audited].count("signal job") >= 3


async def is_suspended(person: Person, path: str) -> bool:
    return (await person.get(path))["suspended"] == "waiting"


async def test_a_job_is_cancelled_with_a_reason(orders_app: OrdersApp, admin: Person) -> None:
    job = await orders_app.ship.enqueue("ada")
    path = f"/api/queues/orders/jobs/{job.id}"

    cancelled = await admin.post(f"{path}/cancel", {"reason": "sold out"})

    assert cancelled["status"] == "cancelled"
    assert ((await admin.get(path))["state"], (await admin.get(path))["error"]) == ("cancelled", "sold out")


async def test_a_running_job_is_told_to_stop(orders_app: OrdersApp, admin: Person) -> None:
    job = await orders_app.wait.enqueue()
    async with orders_app.app.worker():
        await orders_app.begun.wait()
        path = f"/api/queues/orders/jobs/{job.id}"
        assert (await admin.get(f"{path}/why"))["reasons"][0]["code"] == "running"
        assert [one["id"] for one in (await admin.get("/api/running"))["jobs"]] == [job.id]
        await admin.refused(409, "DELETE", path)

        assert (await admin.post(f"{path}/cancel"))["status"] == "cancelling"
        with pytest.raises(qbull.JobCancelled):
            await job.result(timeout=10)


async def test_jobs_are_found_by_every_filter(orders_app: OrdersApp, viewer: Person) -> None:
    await orders_app.ship.enqueue("ada", items=[{"sku": 7}])
    await orders_app.ship.enqueue("bob", fail="no stamps")
    await orders_app.ship.enqueue("eve", fail="no ink")
    await orders_app.drain()
    await orders_app.ship.enqueue("kim", items=[{"sku": 9}])
    await orders_app.ship.options(delay=600).enqueue("leo")

    async def found(**query: str) -> list[str]:
        jobs = (await viewer.get("/api/queues/orders/jobs", **query))["jobs"]
        return sorted(job["payload"]["customer"] for job in jobs)

    fingerprint = (await viewer.get("/api/queues/orders/failures"))["groups"][0]["fingerprint"]
    assert await found(state="failed") == ["bob", "eve"]
    assert await found(state="failed", errorContains="INK") == ["eve"]
    assert len(await found(state="failed", fingerprint=fingerprint)) == 1
    assert await found(state="failed", key="bob") == ["bob"]
    assert await found(state="completed", payload="items.0.sku=7") == ["ada"]
    assert await found(state="waiting", payload="items.0.sku=9") == ["kim"]
    assert await found(state="delayed", task="ship") == ["leo"]
    assert await found(state="waiting", task="wait") == []
    assert await found(state="failed", after="2100-01-01T00:00:00Z") == []
    assert await found(state="failed", before="2100-01-01T00:00:00+01:00") == ["bob", "eve"]


async def test_pages_follow_each_other(orders_app: OrdersApp, viewer: Person) -> None:
    await orders_app.ship.enqueue_many([{"customer": f"c{n}", "fail": "x"} for n in range(30)])
    await orders_app.drain()

    seen: list[str] = []
    query: dict[str, Any] = {"state": "failed", "limit": 7}
    while True:
        page = await viewer.get("/api/queues/orders/jobs", **query)
        seen += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]

    assert len(seen) == len(set(seen)) == 30


@pytest.mark.parametrize(
    "query",
    [
        {"state": "late"},
        {"start": 5, "end": 2},
        {"start": -1},
        {"end": 1001},
        {"limit": 0},
        {"cursor": "yesterday"},
        {"state": "waiting", "cursor": "yesterday"},
        {"after": "soon"},
        {"after": "2030-01-01T00:00:00"},
        {"payload": "x"},
        {"start": 0, "task": "ship"},
        {"fingerprint": "xyz"},
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(
    orders_app: OrdersApp, viewer: Person, query: dict[str, Any]
) -> None:
    await viewer.refused(400, "GET", "/api/queues/orders/jobs", params=query)


async def test_payloads_are_hidden_from_viewers_where_asked_for(app: qbull.App) -> None:
    orders_app = OrdersApp(app)
    access = qbull.Access(admin_token=ADMIN, viewer_token=VIEWER, hide_payloads=True)
    job = await orders_app.ship.enqueue("ada", fail="no stamps")
    await orders_app.drain()
    async with opened(app, access) as web:
        viewer, admin = await web.person(VIEWER), await web.person(ADMIN)
        path = f"/api/queues/orders/jobs/{job.id}"

        hidden, shown = await viewer.get(path), await admin.get(path)

        assert (hidden["payload"], hidden["result"], hidden["stacktrace"]) == (None, None, None)
        assert hidden["failedReason"] == "ValueError: [redacted]"
        assert shown["payload"]["customer"] == "ada" and shown["stacktrace"]
        assert (await viewer.get(f"{path}/logs"))["logs"] == [] and (await admin.get(f"{path}/logs"))["logs"]
        assert (
            (await viewer.get("/api/me"))["seesPayloads"],
            (await admin.get("/api/me"))["seesPayloads"],
        ) == (False, True)
        await viewer.refused(
            403, "GET", "/api/queues/orders/jobs", params={"state": "failed", "payload": "customer=ada"}
        )


async def test_a_hidden_field_cannot_be_asked_for_or_sent_back(app: qbull.App) -> None:
    orders_app = OrdersApp(app)
    job = await orders_app.ship.enqueue("ada-the-secret", fail="no stamps for ada-the-secret")
    await orders_app.drain()
    async with opened(app, qbull.Access(admin_token=ADMIN, redact=("Customer",))) as web:
        admin = await web.person(ADMIN)
        path = f"/api/queues/orders/jobs/{job.id}"
        shown = await admin.get(path)

        assert shown["payload"]["customer"] == "[redacted]"
        texts = [await admin.ask("GET", f"{path}{end}") for end in ("", "/history", "/logs", "/why")]
        assert not any("ada-the-secret" in answer.json().get("payload", {}) for answer in texts)
        assert "ada-the-secret" not in shown["error"] + shown["stacktrace"] + texts[1].text + texts[2].text
        for groups in ("/api/queues/orders/failures", "/api/overview"):
            answer = (await admin.ask("GET", groups)).text
            assert "no stamps for [redacted]" in answer and "ada-the-secret" not in answer
        await admin.refused(400, "POST", f"{path}/retry", {"payload": shown["payload"]})
        await admin.refused(
            403, "GET", "/api/queues/orders/jobs", params={"payload": "customer=ada-the-secret"}
        )


class Why:
    """Why a job is not running, in words and as a code."""

    def __init__(self, person: Person) -> None:
        self._person = person

    async def __call__(self, job: Any) -> list[str]:
        reasons = (await self._person.get(f"/api/queues/orders/jobs/{job.id}/why"))["reasons"]
        assert all(one["text"] for one in reasons)
        return [one["code"] for one in reasons]


@pytest.fixture(name="why")
def make_why(viewer: Person) -> Why:
    return Why(viewer)


async def test_only_the_most_frequent_groups_of_failures_are_shown(
    orders_app: OrdersApp, viewer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MAX_FAILURE_GROUPS", 2)
    for times, word in ((3, "one"), (1, "two"), (2, "three"), (1, "four")):
        await orders_app.ship.enqueue_many([{"customer": "ada", "fail": f"for reason {word}"}] * times)
    await orders_app.drain()

    answer = await viewer.get("/api/queues/orders/failures")

    assert [group["count"] for group in answer["groups"]] == [3, 2] and answer["leftOut"] == 2


async def test_why_nothing_runs_without_workers(orders_app: OrdersApp, why: Why) -> None:
    job = await orders_app.ship.enqueue("ada")
    later = await orders_app.ship.options(delay=600).enqueue("bob")

    assert await why(job) == ["no-worker"]
    assert await why(later) == ["no-worker", "due"]


async def test_why_nothing_runs_of_a_paused_queue(orders_app: OrdersApp, why: Why, admin: Person) -> None:
    job = await orders_app.ship.enqueue("ada")
    async with orders_app.app.worker():
        await job.result(timeout=10)
        await admin.post("/api/queues/orders/pause")
        waiting = await orders_app.ship.enqueue("ada")

        assert "paused" in await why(waiting)
        text = (await admin.get(f"/api/queues/orders/jobs/{waiting.id}/why"))["reasons"][0]["text"]
        assert "QBULL_ADMIN_TOKEN" in text
    assert await why(job) == ["finished"]


async def test_why_a_job_waits_behind_another_of_its_key(
    orders_app: OrdersApp, why: Why, viewer: Person
) -> None:
    first = await orders_app.ship.enqueue("ada")
    second = await orders_app.ship.enqueue("ada")
    third = await orders_app.ship.enqueue("ada")

    reasons = (await viewer.get(f"/api/queues/orders/jobs/{third.id}/why"))["reasons"]
    line = await viewer.get("/api/queues/orders/keys/ada")

    assert [one["code"] for one in reasons] == ["no-worker", "behind"]
    assert reasons[1]["jobId"] == first.id and "number 2" in reasons[1]["text"]
    assert (line["holder"]["id"], [job["id"] for job in line["jobs"]]) == (first.id, [second.id, third.id])
    assert (line["waiting"], line["halted"]) == (2, False)


async def test_why_a_job_waits_behind_a_halted_key(app: qbull.App, web: Web, why: Why, admin: Person) -> None:
    orders_app = OrdersApp(app, order="key", on_failed="halt")
    dead = await orders_app.ship.enqueue("ada", fail="no stamps")
    behind = await orders_app.ship.enqueue("ada")
    async with app.worker():

        async def failed() -> bool:
            return await dead.state() == "failed"

        await eventually(failed)
        reasons = (await admin.get(f"/api/queues/orders/jobs/{behind.id}/why"))["reasons"]
        line = await admin.get("/api/queues/orders/keys/ada")

        assert [one["code"] for one in reasons] == ["halted"] and reasons[0]["jobId"] == dead.id
        assert (line["halted"], line["holder"]["id"], line["waiting"]) == (True, dead.id, 1)
        await admin.delete(f"/api/queues/orders/jobs/{dead.id}")
        await behind.result(timeout=10)


async def test_why_a_job_waits_for_its_next_attempt(app: qbull.App, why: Why, web: Web) -> None:
    queue = app.queue("orders", retry=qbull.Retry(delays=(600,)))

    @queue.task
    async def fail() -> None:
        raise ValueError("no stamps")

    job = await fail.enqueue()
    async with app.worker():

        async def delayed() -> bool:
            return await job.state() == "delayed"

        await eventually(delayed)
        assert await why(job) == ["retry"]


async def test_why_a_job_waits_while_others_run(app: qbull.App, why: Why, web: Web) -> None:
    orders_app = OrdersApp(app, concurrency=1)
    await orders_app.wait.enqueue()
    async with app.worker():
        await orders_app.begun.wait()
        second = await orders_app.ship.enqueue("ada")

        async def in_line() -> bool:
            return await why(second) == ["busy"]

        await eventually(in_line)
        orders_app.let_go.set()


async def test_why_a_limit_holds_a_job_back(app: qbull.App, why: Why, web: Web) -> None:
    orders_app = OrdersApp(app, max_active=1)
    await orders_app.wait.enqueue()
    async with app.worker():
        await orders_app.begun.wait()
        second = await orders_app.ship.enqueue("ada")

        assert await why(second) == ["limit"]
        orders_app.let_go.set()
