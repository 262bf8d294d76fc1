"""Kinds of errors through the API: exact numbers, however many jobs have failed, and nothing hidden."""

from __future__ import annotations

import re
from typing import Any

import pytest
from web import ADMIN, VIEWER, Person, make_admin, make_operator, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from qbull.core.failures import fingerprint
from qbull.store.store import Store

KINDS = {"SMTPError: 421 from {n}": 640, "template has no block body": 70, "connection refused": 15}


@pytest.fixture(name="broken")
async def fail_many(app: qbull.App) -> qbull.Queue:
    email = app.queue("email", retry=qbull.Retry(attempts=1), partitions=2, keep=qbull.Keep(failed=100))

    @email.task
    async def send(error: str) -> None:
        raise ConnectionError(error)

    calls = [{"error": error.format(n=n)} for error, many in KINDS.items() for n in range(many)]
    await send.enqueue_many(calls)
    async with app.worker() as worker:
        await worker.drain()
    return email


async def test_failures_are_counted_exactly_although_few_of_them_are_kept(
    broken: qbull.Queue, viewer: Person
) -> None:
    told = await viewer.get("/api/errors", minutes=60)
    overview = await viewer.get("/api/overview")

    assert [kind["count"] for kind in told["kinds"]] == [640, 70, 15]
    assert told["others"] == 0
    assert [one["group"]["count"] for one in overview["failing"]] == [640, 70, 15]
    assert told["kinds"][0]["error"] == "ConnectionError: SMTPError: <n> from <n>"
    assert told["kinds"][0]["task"] == "send"


async def test_a_kind_has_a_history(broken: qbull.Queue, viewer: Person) -> None:
    name = fingerprint("ConnectionError: connection refused")

    told = await viewer.get(f"/api/queues/email/errors/{name}", minutes=1440)

    assert sum(minute["count"] for minute in told["history"]) == told["kind"]["total"] == 15
    assert told["kind"]["lastError"] == "ConnectionError: connection refused"
    missing = await viewer.refused(404, "GET", "/api/queues/email/errors/000000000000")
    assert "no job has failed with the kind of error 000000000000" in missing


async def test_a_retried_job_leaves_its_kind_counted(broken: qbull.Queue, viewer: Person) -> None:
    (before,) = [kind for kind in (await viewer.get("/api/errors"))["kinds"] if kind["count"] == 15]
    await broken.redrive()

    (after,) = [kind for kind in (await viewer.get("/api/errors"))["kinds"] if kind["count"] == 15]
    assert after["fingerprint"] == before["fingerprint"]
    assert after["error"] == before["error"]


REDACTING = qbull.Access(admin_token=ADMIN, viewer_token=VIEWER, redact=("password",))
HIDING = qbull.Access(admin_token=ADMIN, viewer_token=VIEWER, hide_payloads=True)
SECRET = "opensesame"


@pytest.mark.parametrize("access", [REDACTING, HIDING])
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_kind_reveals_nothing_that_is_hidden(app: qbull.App, access: Any, is_kept: bool) -> None:
    vault = app.queue("vault", retry=qbull.Retry(attempts=1))

    @vault.task
    async def store(password: str) -> None:
        raise ValueError(f"{password} is refused")

    await store.enqueue(password=SECRET)
    async with app.worker() as worker:
        await worker.drain()
    if not is_kept:
        await vault.clean("failed", older_than=0)
    async with opened(app, access) as web:
        viewer = await web.person(VIEWER)
        told = await viewer.ask("GET", "/api/errors")
        overview = await viewer.ask("GET", "/api/overview")
        (kind,) = told.json()["kinds"]
        detail = await viewer.ask("GET", f"/api/queues/vault/errors/{kind['fingerprint']}")

        assert detail.status_code == 200
        for answer in (told, overview, detail):
            assert SECRET not in answer.text
            assert fingerprint(f"ValueError: {SECRET} is refused") not in answer.text


NAME = fingerprint("ConnectionError: connection refused")
PATH = f"/api/queues/email/errors/{NAME}/acknowledgement"


async def test_an_acknowledged_kind_comes_last_with_its_note(
    broken: qbull.Queue, operator: Person, admin: Person
) -> None:
    smtp = fingerprint("ConnectionError: SMTPError: 421 from 1")
    await operator.put(f"/api/queues/email/errors/{smtp}/acknowledgement", {"note": "ticket 4711"})
    failing = (await operator.get("/api/overview"))["failing"]
    page = (await operator.get(f"/api/queues/email/errors/{smtp}"))["kind"]
    kinds = (await operator.get("/api/errors"))["kinds"]
    audit = (await admin.get("/api/audit"))["entries"][0]

    assert [one["group"]["count"] for one in failing] == [70, 15, 640]
    noted = failing[-1]["acknowledged"]
    assert (noted["note"], noted["by"], noted["returned"]) == ("ticket 4711", "QBULL_OPERATOR_TOKEN", None)
    assert page["acknowledged"] == noted
    assert [kind["acknowledged"] for kind in kinds] == [noted, None, None]
    assert (audit["action"], audit["detail"]["note"]) == ("acknowledge error", "ticket 4711")

    await operator.delete(f"/api/queues/email/errors/{smtp}/acknowledgement")
    assert [one["group"]["count"] for one in (await operator.get("/api/overview"))["failing"]] == [
        640,
        70,
        15,
    ]
    await operator.refused(404, "DELETE", f"/api/queues/email/errors/{smtp}/acknowledgement")


async def test_an_acknowledged_kind_returns_after_a_quiet_hour_or_with_a_higher_rate(
    app: qbull.App, store: Store, broken: qbull.Queue, operator: Person
) -> None:
    await operator.put(PATH, {"note": "known"})

    async def returned() -> str | None:
        kind = (await operator.get(f"/api/queues/email/errors/{NAME}", minutes=60))["kind"]
        return str(kind["acknowledged"]["returned"]) if kind["acknowledged"]["returned"] else None

    assert await returned() is None
    # As if it had been acknowledged two hours ago, with one failure before and 15 a minute since.
    name = store.names.queue("email") + "acknowledged"
    packed = (await store.server.call("HGET", name, NAME)).decode()
    at_ms = int(packed.split(" ")[0]) - 7_200_000
    await store.server.call("HSET", name, NAME, f"{at_ms} 1\n" + packed.partition("\n")[2])
    assert await returned() == "reappeared"
    # As if the failures had gone on without a quiet hour, and then became many.
    for partition in await broken._partitions():
        facts = await store.server.call("HGET", partition.base + "errors", NAME)
        if facts is not None:
            moved = re.sub(rb"@\d+ ", b"@%d " % (at_ms - 1), facts)
            await store.server.call("HSET", partition.base + "errors", NAME, moved)
    assert await returned() is None
    await app.send_many("email", "send", [{"error": "connection refused"}] * 10)
    async with app.worker() as worker:
        await worker.drain()
    assert await returned() == "rate"


@pytest.mark.parametrize("note", ["", "x" * 501, "two\nlines"])
async def test_a_note_is_one_line(broken: qbull.Queue, operator: Person, note: str) -> None:
    await operator.refused(400, "PUT", PATH, {"note": note})


async def test_a_viewer_acknowledges_nothing_and_an_unknown_kind_is_refused(
    broken: qbull.Queue, viewer: Person, operator: Person
) -> None:
    await viewer.refused(403, "PUT", PATH, {"note": "mine"})
    unknown = "/api/queues/email/errors/000000000000/acknowledgement"
    assert "no job has failed" in await operator.refused(404, "PUT", unknown, {"note": "mine"})
