"""Retry with changed arguments: a preview shows five jobs, and an operation changes all that the patch fits."""

from __future__ import annotations

from typing import Any

import pytest
from web import ADMIN, Person, make_admin, make_operator, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually

PATH = "/api/queues/orders"


@pytest.fixture(name="orders")
async def fail_orders(app: qbull.App) -> qbull.Queue:
    orders = app.queue("orders", partitions=2, retry=qbull.Retry(attempts=1))

    @orders.task
    async def ship(customer: str, weight: int, carrier: str = "", pin: str = "") -> str:
        if not carrier:
            raise ValueError("no carrier")
        return f"{customer} {weight} {carrier}"

    @orders.task
    async def bill(customer: str) -> None:
        raise ValueError("no carrier")

    await ship.enqueue_many([{"customer": f"c{n}", "weight": n, "pin": f"pin-{n}"} for n in range(8)])
    await bill.enqueue("c0")
    async with app.worker() as worker:
        await worker.drain()
    return orders


async def ended(person: Person, started: dict[str, Any]) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found = (await person.get(f"/api/operations/{started['operationId']}"))["operation"]
        return None if found["state"] == "running" else found

    return await eventually(look)  # type: ignore[no-any-return]


async def test_a_preview_shows_five_jobs_before_and_after_and_changes_nothing(
    orders: qbull.Queue, operator: Person
) -> None:
    told = await operator.post(
        f"{PATH}/operations/preview", {"task": "ship", "patch": {"carrier": "post", "pin": None}}
    )

    assert len(told["jobs"]) == 5
    for job in told["jobs"]:
        assert job["after"] == {
            "customer": job["before"]["customer"],
            "weight": job["before"]["weight"],
            "carrier": "post",
        }
        assert job["refusal"] is None
    assert (await orders.stats()).failed == 9


async def test_an_operation_retries_the_jobs_that_the_patch_fits_and_counts_the_others(
    app: qbull.App, orders: qbull.Queue, operator: Person
) -> None:
    started = await operator.post(f"{PATH}/operations", {"action": "retry", "patch": {"carrier": "post"}})
    operation = await ended(operator, started)
    async with app.worker() as worker:
        await worker.drain()

    assert (operation["done"], operation["refused"], operation["state"]) == (8, 1, "done")
    assert "carrier" in operation["refusal"]
    assert operation["filter"] == {"state": "failed", "patch": ["carrier"]}
    assert ((await orders.stats()).completed, (await orders.stats()).failed) == (8, 1)


async def test_a_redrive_takes_a_patch_and_the_audit_log_has_its_names(
    orders: qbull.Queue, admin: Person
) -> None:
    told = await admin.post(f"{PATH}/redrive", {"task": "ship", "patch": {"pin": "secret-pin"}})
    audit = await admin.ask("GET", "/api/audit")

    assert told["count"] == 8
    assert "secret-pin" not in audit.text
    assert audit.json()["entries"][0]["detail"]["filter"]["patch"] == ["pin"]


async def test_a_patch_is_for_retries_and_has_changes(orders: qbull.Queue, operator: Person) -> None:
    asked = {"action": "cancel", "state": "waiting", "patch": {"a": 1}}
    assert "applies only to retry" in await operator.refused(400, "POST", f"{PATH}/operations", asked)
    for empty in ({}, None, [1]):
        await operator.refused(400, "POST", f"{PATH}/operations/preview", {"patch": empty})


async def test_a_viewer_previews_no_patch(orders: qbull.Queue, viewer: Person) -> None:
    await viewer.refused(403, "POST", f"{PATH}/operations/preview", {"patch": {"carrier": "post"}})


async def test_a_preview_hides_what_is_hidden(app: qbull.App, orders: qbull.Queue) -> None:
    async with opened(app, qbull.Access(admin_token=ADMIN, redact=("pin",))) as web:
        admin = await web.person(ADMIN)
        answer = await admin.ask("POST", f"{PATH}/operations/preview", {"patch": {"carrier": 1}})
        refused = await admin.refused(
            400,
            "POST",
            f"{PATH}/operations/preview",
            {"patch": {"pin": answer.json()["jobs"][0]["before"]["pin"]}},
        )
        operation = await ended(
            admin, await admin.post(f"{PATH}/operations", {"action": "retry", "patch": {"carrier": 1}})
        )

    assert "pin-" not in answer.text
    assert "stands for a hidden value" in refused
    assert all("expected" in one["refusal"] for one in answer.json()["jobs"] if one["task"] == "ship")
    assert operation["refused"] == 9
    assert operation["refusal"] == "the new arguments do not fit; a preview of the patch shows why"
