"""Redaction: nothing that a caller may not see can be asked for in a roundabout way."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from web import ADMIN, VIEWER, Person, opened

import qbull

SECRET = "s3cret-Pass"


@pytest.fixture(name="orders")
async def fill(app: qbull.App) -> qbull.Queue:
    """Two dead letters whose errors have the arguments in them: one as it is, one escaped."""
    orders = app.queue("orders", retry=qbull.Retry(attempts=1))

    @orders.task
    async def ship(customer: str, password: str, escaped: bool = False) -> None:
        raise ValueError((json.dumps(password) if escaped else password) + " is refused")

    await ship.enqueue(customer="ada", password=SECRET)
    await ship.enqueue(customer="bob", password='qu"ote\\d', escaped=True)
    await ship.options(key=SECRET).enqueue(customer="eve", password=SECRET)
    async with app.worker() as worker:
        await worker.drain()
    return orders


REDACTING = qbull.Access(admin_token=ADMIN, viewer_token=VIEWER, redact=("password",))
HIDING = qbull.Access(admin_token=ADMIN, viewer_token=VIEWER, hide_payloads=True)


async def found(person: Person, **query: str) -> int:
    answer = await person.ask("GET", "/api/queues/orders/jobs", params={"state": "failed", **query})
    return len(answer.json()["jobs"]) if answer.status_code == 200 else -1


async def guess(person: Person, length: int) -> str:
    """The attack: spell a hidden value, letter by letter, with a filter that says yes or no."""
    known = ""
    while len(known) < length:
        for letter in string.ascii_lowercase + string.digits + "-":
            if await found(person, errorContains="ValueError: " + known + letter) > 0:
                known += letter
                break
        else:
            return known
    return known


async def test_a_hidden_value_cannot_be_spelled_with_a_filter(app: qbull.App, orders: qbull.Queue) -> None:
    async with opened(app, REDACTING) as web:
        admin = await web.person(ADMIN)

        assert len(await guess(admin, 3)) < 3
        assert await found(admin, errorContains=SECRET) == 0
        assert await found(admin, errorContains="is refused") == 3
        assert await found(admin, key=SECRET) == 0


@pytest.mark.parametrize("path", ["matching", "failures"])
async def test_counts_and_groups_do_not_tell_either(path: str, app: qbull.App, orders: qbull.Queue) -> None:
    async with opened(app, REDACTING) as web:
        admin = await web.person(ADMIN)
        query = {"errorContains": SECRET} | ({"state": "failed"} if path == "matching" else {})
        answer = await admin.get(f"/api/queues/orders/{path}", **query)

    assert answer.get("count", len(answer.get("groups", []))) == 0


async def test_bulk_work_does_not_tell_either(app: qbull.App, orders: qbull.Queue) -> None:
    async with opened(app, REDACTING) as web:
        admin = await web.person(ADMIN)

        assert (await admin.post("/api/queues/orders/redrive", {"errorContains": SECRET}))["count"] == 0
        assert (await admin.post("/api/queues/orders/redrive", {"errorContains": "is refused"}))["count"] == 3


async def test_a_group_is_named_by_what_is_shown(app: qbull.App, orders: qbull.Queue) -> None:
    from qbull.core.failures import fingerprint

    async with opened(app, REDACTING) as web:
        admin = await web.person(ADMIN)
        groups = (await admin.get("/api/queues/orders/failures"))["groups"]

    assert fingerprint(f"ValueError: {SECRET} is refused") not in [group["fingerprint"] for group in groups]
    assert sum(group["count"] for group in groups) == 3


async def every_answer(person: Person, id: str) -> str:
    texts = []
    for path in (
        "/api/queues/orders/jobs?state=failed", f"/api/queues/orders/jobs/{id}", f"/api/queues/orders/jobs/{id}/history",
        f"/api/queues/orders/jobs/{id}/why", f"/api/queues/orders/jobs/{id}/logs", f"/api/queues/orders/jobs/{id}/steps", "/api/queues/orders/failures",
        "/api/overview", "/api/alerts", "/api/flows", "/api/schedules",
    ):  # fmt: skip
        answer = await person.client.get(path)
        assert answer.status_code in (200, 404), (path, answer.text)
        texts.append(answer.text)
    return "\n".join(texts)


async def test_escaped_forms_are_hidden_in_every_answer(app: qbull.App, orders: qbull.Queue) -> None:
    ids = [job.id for job in await orders.jobs("failed")]
    async with opened(app, REDACTING) as web:
        admin = await web.person(ADMIN)
        for id in ids:
            text = await every_answer(admin, id)
            assert SECRET not in text
            assert json.dumps(json.dumps('qu"ote\\d')[1:-1])[1:-1] not in text


async def test_hidden_payloads_are_not_in_errors_either(app: qbull.App, orders: qbull.Queue) -> None:
    ids = [job.id for job in await orders.jobs("failed")]
    async with opened(app, HIDING) as web:
        viewer, admin = await web.person(VIEWER), await web.person(ADMIN)
        shown: dict[str, Any] = (await viewer.get("/api/queues/orders/jobs", state="failed"))["jobs"][0]
        texts = [await every_answer(viewer, id) for id in ids]
        whole = await every_answer(admin, ids[0])

    assert (shown["payload"], shown["stacktrace"]) == (None, None)
    assert shown["failedReason"] == "ValueError: [redacted]"
    assert all(
        "is refused" not in text and SECRET not in text.replace(f'"key":"{SECRET}"', "") for text in texts
    )
    assert "is refused" in whole


@pytest.mark.parametrize(
    "query", [{"errorContains": "x"}, {"fingerprint": "0" * 12}, {"payload": "customer=ada"}]
)
async def test_whoever_sees_no_payloads_cannot_filter_by_them(
    query: dict[str, str], app: qbull.App, orders: qbull.Queue
) -> None:
    async with opened(app, HIDING) as web:
        viewer = await web.person(VIEWER)
        for path in ("jobs?state=failed", "failures?scan=10", "matching?state=failed"):
            name, _, rest = path.partition("?")
            asked = {**dict([rest.split("=")]), **query}
            text = await viewer.refused(403, "GET", f"/api/queues/orders/{name}", params=asked)
            assert "shows arguments and errors to admins only" in text


async def test_a_job_that_ended_with_another_shows_no_value_of_that_one(app: qbull.App) -> None:
    """Its error has the text of the other's error, and its own arguments do not say what is hidden there."""
    orders = app.queue("orders", retry=qbull.Retry(attempts=1))

    @orders.task
    async def ship(password: str) -> str:
        raise ValueError(password + " is refused")

    @orders.task
    async def tell() -> None: ...

    @orders.task(durable=True)
    async def manage() -> str:
        return await qbull.current_job().call(ship.step(SECRET))

    flow = await qbull.chain(ship.step(SECRET), tell.step(), tell.step()).enqueue()
    called = await manage.enqueue()
    async with app.worker() as worker:
        await worker.drain()
        with pytest.raises(qbull.JobFailed):
            await called.result(timeout=20)
    async with opened(app, REDACTING) as web:
        admin = await web.person(ADMIN)
        shown = [await admin.get(f"/api/queues/orders/jobs/{id}") for id in (flow.last.id, called.id)]
        texts = [await every_answer(admin, id) for id in (flow.last.id, called.id)]
        guessed = await found(admin, errorContains="ValueError: " + SECRET[0])
        answer = await admin.get("/api/jobs", q=f'error:"ValueError: {SECRET[0]}"')

    assert all(job["error"].endswith("failed: ValueError: [redacted]") for job in shown)
    assert all(SECRET not in text for text in texts)
    assert (guessed, answer["jobs"]) == (0, [])
