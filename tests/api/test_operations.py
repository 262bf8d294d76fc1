"""Work on many jobs: it runs on the server, says how far it is, can be stopped, and is not lost in silence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from web import ACCESS, ADMIN, Person, Web, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.api import running_operations
from qbull.manage import bulk
from qbull.store.read.unfinished import scan_unfinished
from qbull.store.store import Store
from qbull.store.verbs import operations
from qbull.store.verbs.operations import (
    MAX_OPERATIONS,
    OPERATION_LOST_AFTER_SECONDS,
    OPERATION_LOST_ERROR,
    Operation,
)

PATH = "/api/queues/orders"


class OrdersApp:
    def __init__(self, app: qbull.App) -> None:
        self.app = app
        self.orders = app.queue("orders", partitions=2, retry=qbull.Retry(attempts=1))

        @self.orders.task
        async def ship(customer: str, fail: str = "") -> str:
            if fail:
                raise ValueError(fail)
            return customer

        @self.orders.task
        async def bill(customer: str) -> None: ...

        self.ship, self.bill = ship, bill

    async def fail(self, many: int, error: str = "no stamps") -> None:
        await self.ship.enqueue_many([{"customer": f"c{n}", "fail": error} for n in range(many)])
        async with self.app.worker() as worker:
            await worker.drain()

    async def counts(self) -> dict[str, int]:
        stats = await self.orders.stats()
        names = ("waiting", "delayed", "completed", "failed", "cancelled")
        return {name: n for name in names if (n := getattr(stats, name))}


@pytest.fixture(name="orders_app")
def make_orders_app(app: qbull.App) -> OrdersApp:
    return OrdersApp(app)


async def ended(person: Person, started: dict[str, Any]) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found = (await person.get(f"/api/operations/{started['operationId']}"))["operation"]
        return None if found["state"] == "running" else found

    return await eventually(look)  # type: ignore[no-any-return]


async def test_an_operation_is_started_and_asked_about(orders_app: OrdersApp, admin: Person) -> None:
    await orders_app.fail(30)

    started = await admin.ask("POST", f"{PATH}/operations", {"action": "retry"})
    operation = await ended(admin, started.json())

    assert (started.status_code, started.json()["state"]) == (202, "running")
    assert started.headers["location"] == f"/api/operations/{operation['id']}"
    assert (operation["state"], operation["done"], operation["total"], operation["by"]) == (
        "done",
        30,
        30,
        "QBULL_ADMIN_TOKEN",
    )
    assert await orders_app.counts() == {"waiting": 30}
    assert (await admin.get("/api/operations"))["operations"][0]["id"] == operation["id"]


async def test_only_what_matches_is_met(orders_app: OrdersApp, admin: Person) -> None:
    await orders_app.fail(5, "no stamps")
    await orders_app.fail(3, "no ink")
    about_ink = {"errorContains": "ink"}

    matching = await admin.get(f"{PATH}/matching", state="failed", **about_ink)
    started = await admin.post(f"{PATH}/operations", {"action": "remove", "state": "failed", **about_ink})
    operation = await ended(admin, started)

    assert (matching["count"], matching["exact"], matching["lookedAt"]) == (3, True, 8)
    assert (operation["done"], operation["lookedAt"], operation["filter"]) == (
        3,
        8,
        {"state": "failed", "error_contains": "ink"},
    )
    assert await orders_app.counts() == {"failed": 5}


@pytest.mark.parametrize(
    ("request_", "left"),
    [
        (
            {"action": "cancel", "state": "waiting", "task": "ship"},
            {"waiting": 2, "delayed": 4, "cancelled": 6},
        ),
        ({"action": "cancel", "state": "delayed"}, {"waiting": 8, "cancelled": 4}),
        ({"action": "promote"}, {"waiting": 12}),
        ({"action": "reschedule", "at": "now"}, {"waiting": 12}),
        (
            {"action": "reschedule", "state": "waiting", "task": "ship", "at": "2h"},
            {"waiting": 2, "delayed": 10},
        ),
        ({"action": "reschedule", "state": "waiting", "delay": 60, "limit": 5}, {"waiting": 3, "delayed": 9}),
        ({"action": "remove", "state": "waiting", "payload": "customer=c1"}, {"waiting": 7, "delayed": 4}),
        ({"action": "remove", "state": "delayed", "limit": 3}, {"waiting": 8, "delayed": 1}),
        ({"action": "cancel", "state": "waiting", "key": "nobody"}, {"waiting": 8, "delayed": 4}),
    ],
    ids=str,
)
async def test_jobs_that_have_not_begun_are_dealt_with(
    orders_app: OrdersApp, admin: Person, request_: dict[str, Any], left: dict[str, int]
) -> None:
    await orders_app.ship.enqueue_many([{"customer": f"c{n}"} for n in range(6)])
    await orders_app.bill.enqueue_many([{"customer": "b"}] * 2)
    await orders_app.ship.options(delay=600).enqueue_many([{"customer": f"d{n}"} for n in range(4)])

    await ended(admin, await admin.post(f"{PATH}/operations", request_))

    assert await orders_app.counts() == left


async def test_cancelled_jobs_keep_the_reason(orders_app: OrdersApp, admin: Person) -> None:
    await orders_app.ship.enqueue_many([{"customer": f"c{n}"} for n in range(3)])

    asked = {"action": "cancel", "task": "ship", "reason": "sold out"}
    await ended(admin, await admin.post(f"{PATH}/operations", asked))

    cancelled = (await orders_app.orders.search("cancelled")).jobs
    assert [job.error for job in cancelled] == ["sold out"] * 3


@pytest.mark.parametrize(
    "request_",
    [
        {"action": "explode"},
        {"action": "cancel", "state": "failed"},
        {"action": "promote", "state": "waiting"},
        {"action": "reschedule"},
        {"action": "reschedule", "delay": 5, "at": "2h"},
        {"action": "reschedule", "at": "soon"},
        {"action": "reschedule", "at": "2030-02-31"},
        {"action": "reschedule", "state": "active", "delay": 5},
        {"action": "promote", "delay": 5},
        {"action": "promote", "reason": "too late"},
        {"action": "cancel", "reason": ""},
        {"action": "remove", "state": "active"},
        {"action": "clean", "state": "waiting"},
        {"action": "remove", "state": "waiting", "olderThan": 5},
        {"action": "retry", "rate": 0},
        {"action": "retry", "limit": 0},
        {},
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused(
    orders_app: OrdersApp, admin: Person, request_: dict[str, Any]
) -> None:
    await admin.refused(400, "POST", f"{PATH}/operations", request_)
    assert (await admin.get("/api/operations"))["operations"] == []


async def test_a_redrive_answers_with_how_many(orders_app: OrdersApp, admin: Person) -> None:
    await orders_app.fail(5, "no stamps")
    await orders_app.fail(3, "no ink")

    some = await admin.post(f"{PATH}/redrive", {"limit": 1, "task": "ship", "errorContains": "ink"})
    rest = await admin.post(f"{PATH}/redrive")

    assert (some["count"], some["state"], rest["count"]) == (1, "done", 7)
    assert await orders_app.counts() == {"waiting": 8}


async def test_a_slow_operation_is_stopped(orders_app: OrdersApp, admin: Person) -> None:
    await orders_app.fail(30)
    started = await admin.post(f"{PATH}/operations", {"action": "retry", "rate": 0.5})
    id = started["operationId"]

    assert (await admin.get(f"/api/operations/{id}"))["operation"]["state"] == "running"
    await admin.post(f"/api/operations/{id}/stop")
    operation = await ended(admin, started)

    assert operation["state"] == "stopped" and "continue with the remaining jobs" in operation["error"]
    assert "stopped" in await admin.refused(409, "POST", f"/api/operations/{id}/stop")
    assert (await admin.post(f"{PATH}/redrive"))["count"] == 30 - operation["done"]


async def test_another_process_can_stop_it_too(orders_app: OrdersApp, admin: Person, store: Store) -> None:
    await orders_app.fail(30)
    started = await admin.post(f"{PATH}/operations", {"action": "retry", "rate": 0.5})

    await operations.ask_to_stop(store, started["operationId"])

    assert (await ended(admin, started))["state"] == "stopped"


async def test_an_api_that_ends_says_that_its_operations_have_stopped(
    orders_app: OrdersApp, admin: Person
) -> None:
    await orders_app.fail(30)
    async with opened(orders_app.app, ACCESS) as other:
        there = await other.person(ADMIN)
        started = await there.post(f"{PATH}/operations", {"action": "retry", "rate": 0.5})

    operation = (await admin.get(f"/api/operations/{started['operationId']}"))["operation"]

    assert operation["state"] == "stopped"


async def test_one_whose_process_was_killed_is_said_to_be_lost(
    orders_app: OrdersApp, admin: Person, store: Store
) -> None:
    seconds, _ = await store.server.call("TIME")
    long_ago = int((int(seconds) - OPERATION_LOST_AFTER_SECONDS - 1) * 1000)
    lost = Operation("0" * 16, "retry", "orders", {}, "ada", long_ago, updated_ms=long_ago)
    await operations.write(store, lost)

    operation = (await admin.get(f"/api/operations/{'0' * 16}"))["operation"]

    assert (operation["state"], operation["error"]) == ("stopped", OPERATION_LOST_ERROR)


async def test_only_the_last_ones_are_remembered(store: Store) -> None:
    for n in range(MAX_OPERATIONS + 5):
        await operations.write(store, Operation(f"{n:016x}", "retry", "orders", {}, "ada", 1000 + n, "done"))

    found = await operations.newest(store, 1000)

    assert len(found) == MAX_OPERATIONS and found[0].id == f"{MAX_OPERATIONS + 4:016x}"
    assert msgspec.structs.asdict(found[0])["state"] == "done"


async def test_not_all_at_once(orders_app: OrdersApp, admin: Person) -> None:
    await orders_app.fail(3)
    for _ in range(8):
        await admin.post(f"{PATH}/operations", {"action": "retry", "rate": 0.01})

    assert "already running here" in await admin.refused(
        409, "POST", f"{PATH}/operations", {"action": "retry"}
    )


async def test_one_that_takes_long_goes_on_while_many_others_end(
    orders_app: OrdersApp, admin: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_operations, "MAX_RUNNING_OPERATIONS", 2)
    await orders_app.fail(3)
    slow = await admin.post(f"{PATH}/operations", {"action": "retry", "rate": 0.01})
    for _ in range(21):
        await admin.post(f"{PATH}/clean/completed")

    await admin.post(f"/api/operations/{slow['operationId']}/stop")

    operation = await ended(admin, slow)
    assert operation["state"] == "stopped" and operation["error"] != OPERATION_LOST_ERROR


async def test_a_job_that_finishes_meanwhile_is_not_removed_as_waiting(
    orders_app: OrdersApp, admin: Person, store: Store
) -> None:
    """What was seen waiting is removed only where it still is."""
    job = await orders_app.ship.enqueue("ada")
    client = orders_app.app._client()
    there = await client.find(orders_app.orders.settings, job.id)
    assert there is not None
    seen = [job async for met in scan_unfinished(there[0], "waiting") for job in met.jobs]
    async with orders_app.app.worker() as worker:
        await worker.drain()

    assert await bulk.remove(client, there[0], seen) == 0
    assert await job.state() == "completed"


async def test_dead_letters_are_grouped_by_what_failed(orders_app: OrdersApp, viewer: Person) -> None:
    await orders_app.fail(5, "no stamps for order 1")
    await orders_app.fail(3, "no ink")

    groups = (await viewer.get(f"{PATH}/failures"))["groups"]

    assert [(group["count"], group["error"]) for group in groups] == [
        (5, "ValueError: no stamps for order <n>"),
        (3, "ValueError: no ink"),
    ]
    assert groups[0]["lastId"] and groups[0]["tasks"] == ["ship"]


async def test_counting_what_matches_is_bounded(
    orders_app: OrdersApp, viewer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.api.operations.MAX_SCANNED_JOBS", 100)
    await orders_app.ship.enqueue_many([{"customer": "ada"}] * 900)

    all_of_them = await viewer.get(f"{PATH}/matching", state="waiting")
    some = await viewer.get(f"{PATH}/matching", state="waiting", task="ship")

    assert (all_of_them["count"], all_of_them["exact"]) == (900, True)
    assert some["exact"] is False and 100 <= some["count"] <= some["lookedAt"] < 900


async def test_what_was_done_is_in_the_audit(orders_app: OrdersApp, admin: Person) -> None:
    await orders_app.fail(2)
    started = await admin.post(f"{PATH}/redrive", {"task": "ship"})

    entry = (await admin.get("/api/audit"))["entries"][0]

    assert (entry["action"], entry["target"], entry["status"], entry["who"]) == (
        "redrive",
        "orders",
        200,
        "QBULL_ADMIN_TOKEN",
    )
    assert entry["detail"] == {
        "action": "redrive",
        "filter": {"state": "failed", "task": "ship"},
        "operation": started["operationId"],
        "jobs": 2,
    }


async def test_the_end_of_an_operation_that_outlives_its_request_is_in_the_audit(
    orders_app: OrdersApp, admin: Person
) -> None:
    await orders_app.fail(2)
    started = await admin.post(f"{PATH}/operations", {"action": "retry"})

    async def has_ended() -> bool:
        return bool((await admin.get("/api/audit", action="end operation"))["entries"])

    await eventually(has_ended)

    [entry] = (await admin.get("/api/audit", action="end operation"))["entries"]
    assert (entry["target"], entry["who"]) == (f"orders/{started['operationId']}", "QBULL_ADMIN_TOKEN")
    assert entry["detail"] == {"action": "retry", "state": "done", "jobs": 2}
