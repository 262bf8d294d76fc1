"""Tokens for some queues, operators, rotation: a token does what it was made for, and no more."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from web import ACCESS, ADMIN, PASSWORD, Person, Web, make_admin, make_nobody, make_operator, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.api.server import config_of
from qbull.store.store import Store
from qbull.store.verbs import tokens


@pytest.fixture(name="two_queues")
async def make_two_queues(app: qbull.App) -> qbull.App:
    """Queues "mail-out" and "billing", each with a task, a dead letter's worth of jobs and a schedule."""
    for name in ("mail-out", "billing"):
        queue = app.queue(name)

        @queue.task(name=f"work_{name[0]}")
        async def work(order: int = 0) -> None:
            pass

        await work.enqueue(order=1)
        await app.schedules.upsert(f"daily-{name}", work, cron="0 5 * * *")
    return app


async def scoped(admin: Person, web: Web, role: str = "admin", *queues: str) -> Person:
    made = await admin.post(
        "/api/tokens", {"name": "mail team", "role": role, "queues": queues or ["mail-*"]}
    )
    return await web.person(made["token"])


async def test_a_token_for_some_queues_sees_only_those(
    two_queues: qbull.App, admin: Person, web: Web
) -> None:
    mail = await scoped(admin, web, "viewer")
    await admin.post("/api/queues/billing/operations", {"action": "promote"})
    await admin.post("/api/queues/mail-out/operations", {"action": "promote"})

    me = await mail.get("/api/me")
    stats = await mail.get("/api/queues/stats")
    schedules = await mail.get("/api/schedules")
    operations = await mail.get("/api/operations")

    assert (me["role"], me["queues"]) == ("viewer", ["mail-*"])
    assert list(stats["queues"]) == ["mail-out"]
    assert [one["name"] for one in schedules["schedules"]] == ["daily-mail-out"]
    assert [one["queue"] for one in operations["operations"]] == ["mail-out"]
    for path in ("/api/overview", "/api/slow", "/api/running", "/api/workers", "/api/flows"):
        assert "billing" not in (await mail.ask("GET", path)).text


async def test_the_live_stream_of_a_token_for_some_queues_has_no_others(
    two_queues: qbull.App, admin: Person, web: Web
) -> None:
    mail = await scoped(admin, web, "viewer")
    heard = ""

    async with mail.client.stream("GET", "/api/events") as stream:
        assert stream.status_code == 200
        async with asyncio.timeout(60):
            async for line in stream.aiter_lines():
                heard += line + "\n"
                if line.startswith("event: snapshot"):
                    await two_queues.queues["billing"].pause()
                    await two_queues.queues["mail-out"].pause()
                if '"isPaused":true' in line:
                    break

    assert "mail-out" in heard and "billing" not in heard
    await mail.refused(403, "GET", "/api/events?queue=billing")


async def test_a_token_for_some_queues_acts_only_on_those(
    two_queues: qbull.App, admin: Person, web: Web
) -> None:
    mail = await scoped(admin, web)

    message = (await mail.post("/api/pause"))["message"]
    await mail.refused(403, "POST", "/api/queues/billing/pause")
    for action in ("pause", "resume", "run"):
        await mail.refused(403, "POST", f"/api/schedules/daily-billing/{action}")
    await mail.refused(403, "POST", "/api/queues/daily-billing/run")
    await mail.refused(403, "DELETE", "/api/schedules/daily-billing")
    await mail.refused(403, "GET", "/api/schedules/daily-billing/preview")
    await mail.post("/api/schedules/daily-mail-out/run")

    paused = {name: (await queue.stats()).paused for name, queue in two_queues.queues.items()}
    assert message == "paused 1 queue" and paused == {"mail-out": True, "billing": False}
    assert not (await two_queues.schedules.get("daily-billing")).paused


async def test_a_token_for_some_queues_makes_schedules_for_those_only(
    two_queues: qbull.App, admin: Person, web: Web
) -> None:
    mail = await scoped(admin, web)

    await mail.refused(403, "PUT", "/api/schedules/mine", {"task": "billing/work_b", "cron": "0 1 * * *"})
    await mail.refused(400, "PUT", "/api/schedules/mine", {"task": "work_b", "cron": "0 1 * * *"})
    await mail.refused(403, "PUT", "/api/schedules/daily-billing", {"task": "mail-out/work_m", "every": 60})
    await mail.put("/api/schedules/mine", {"task": "mail-out/work_m", "cron": "0 1 * * *"})

    assert (await two_queues.schedules.get("daily-billing")).queue == "billing"


async def test_operations_of_other_queues_cannot_be_stopped(
    two_queues: qbull.App, admin: Person, web: Web
) -> None:
    mail = await scoped(admin, web)
    started = await admin.post("/api/queues/billing/operations", {"action": "promote"})

    await mail.refused(403, "GET", f"/api/operations/{started['operationId']}")
    await mail.refused(403, "POST", f"/api/operations/{started['operationId']}/stop")


async def test_an_error_names_no_queue_and_no_schedule_of_others(
    two_queues: qbull.App, admin: Person, web: Web
) -> None:
    mail = await scoped(admin, web)

    for path in ("/api/queues/mail-none/stats", "/api/schedules/none", "/api/queues/mail-out/jobs/none"):
        assert "billing" not in await mail.refused(404, "GET", path)


async def test_a_pattern_that_no_queue_can_have_is_refused(admin: Person) -> None:
    for wrong in (["a queue"], [""], ["x" * 101], ["q"] * 51):
        await admin.refused(400, "POST", "/api/tokens", {"name": "x", "role": "viewer", "queues": wrong})


async def test_a_token_is_for_one_prefix(admin: Person, app: qbull.App) -> None:
    made = await admin.post("/api/tokens", {"name": "ci", "role": "admin"})
    other = qbull.App(app.url, prefix=f"{app.prefix}-other")

    async with other, opened(other) as elsewhere:
        await (await elsewhere.person(made["token"])).refused(401, "GET", "/api/me")


async def test_an_operator_runs_things_and_removes_nothing(
    two_queues: qbull.App, operator: Person, admin: Person
) -> None:
    accepted = await operator.post("/api/queues/mail-out/jobs", {"task": "work_m", "payload": {"order": 2}})
    job = f"/api/queues/mail-out/jobs/{accepted['jobId']}"
    await operator.post("/api/queues/mail-out/pause")
    await operator.post(f"{job}/cancel")
    await operator.post(f"{job}/retry")
    await operator.post("/api/queues/mail-out/operations", {"action": "cancel"})

    refused = await operator.refused(403, "DELETE", job)
    await operator.refused(403, "POST", "/api/queues/mail-out/operations", {"action": "remove"})
    await operator.refused(403, "PUT", "/api/queues/mail-out/settings", {"concurrency": 1})
    await operator.refused(403, "PUT", "/api/queues/mail-out/partitions", {"partitions": 2})

    assert refused == "QBULL_OPERATOR_TOKEN has role operator; role admin is required"
    entries = (await admin.get("/api/audit"))["entries"]
    assert {(one["role"], one["status"]) for one in entries} >= {("operator", 200), ("operator", 403)}


async def test_a_rotated_token_has_a_new_secret_at_once(admin: Person, web: Web) -> None:
    body = {"name": "ci", "role": "operator", "queues": ["mail-*"], "expiresIn": 3600}
    made = await admin.post("/api/tokens", body)
    before = await web.person(made["token"])
    await before.get("/api/me")

    rotated = await admin.post(f"/api/tokens/{made['details']['id']}/rotate")
    after = await web.person(rotated["token"])

    await before.refused(401, "GET", "/api/me")
    me = await after.get("/api/me")
    assert (me["name"], me["role"], me["queues"]) == ("ci", "operator", ["mail-*"])
    assert rotated["details"]["id"] == made["details"]["id"]
    assert rotated["details"]["expiresAt"] > made["details"]["expiresAt"], "valid for an hour again"
    assert rotated["details"]["rotatedAt"] is not None


async def test_with_an_overlap_both_secrets_are_valid_for_a_while(admin: Person, web: Web) -> None:
    made = await admin.post("/api/tokens", {"name": "ci", "role": "viewer"})
    id, before = made["details"]["id"], await web.person(made["token"])
    first = await admin.post(f"/api/tokens/{id}/rotate", {"overlap": 3600})

    await before.get("/api/me")
    await (await web.person(first["token"])).get("/api/me")
    second = await admin.post(f"/api/tokens/{id}/rotate", {"overlap": 0.2})

    await before.refused(401, "GET", "/api/me")
    await (await web.person(second["token"])).get("/api/me")
    await eventually(lambda: _is_refused(web, first["token"]))


async def test_a_session_ends_with_the_secret_that_opened_it(admin: Person, web: Web) -> None:
    made = await admin.post("/api/tokens", {"name": "ada", "role": "viewer"})
    old, new = await web.person(), await web.person()
    await old.post("/api/login", {"token": made["token"]})

    rotated = await admin.post(f"/api/tokens/{made['details']['id']}/rotate")
    await new.post("/api/login", {"token": rotated["token"]})

    await old.refused(401, "GET", "/api/me")
    assert (await new.get("/api/me"))["name"] == "ada"


async def test_of_two_rotations_at_once_one_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    token, _ = await tokens.create(store, "ci", "viewer", by="ada")
    call, others = store.server.call, list[str]()

    async def rotate_meanwhile(*command: Any, **options: Any) -> Any:
        if not others and command[0] in ("EVALSHA", "EVAL") and len(command) > 6:
            others.append("is rotating")
            others[0] = (await tokens.rotate(store, token.id))[1]
        return await call(*command, **options)

    monkeypatch.setattr(store.server, "call", rotate_meanwhile)
    with pytest.raises(qbull.Conflict, match="somebody else has changed it"):
        await tokens.rotate(store, token.id)

    found = await tokens.find(store, token.id)
    assert found is not None and found.token.fits(others[0], found.now_ms)


async def test_a_rotation_whose_reply_is_lost_is_not_done_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, _ = await tokens.create(store, "ci", "viewer", by="ada")
    call, losing = store.server.call, [True]

    async def lose_one(*command: Any, **options: Any) -> Any:
        reply = await call(*command, **options)
        if losing and command[0] in ("EVALSHA", "EVAL") and len(command) > 6:
            losing.clear()
            raise qbull.ServerAway("the reply is lost")
        return reply

    monkeypatch.setattr(store.server, "call", lose_one)
    _, text = await tokens.rotate(store, token.id)

    found = await tokens.find(store, token.id)
    assert not losing and found is not None and found.token.fits(text, found.now_ms)


async def test_a_proxy_that_is_not_declared_is_logged_once(
    nobody: Person, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "qbull.api"):
        for _ in range(3):
            await nobody.ask("GET", "/healthz", headers={"x-forwarded-for": "192.0.2.1, 192.0.2.2"})

    said = [record.getMessage() for record in caplog.records if "X-Forwarded-For" in record.getMessage()]
    assert len(said) == 1 and 'qbull serve --proxies 127.0.0.1"' in said[0]


async def test_a_proxy_that_is_declared_is_not_logged(
    app: qbull.App, caplog: pytest.LogCaptureFixture
) -> None:
    api = qbull.asgi(app, ACCESS)
    config = config_of(api, "127.0.0.1", 0, proxies="127.0.0.1")
    config.load()
    transport = httpx.ASGITransport(config.loaded_app, client=("127.0.0.1", 5000))  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING, "qbull.api"):
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/healthz", headers={"x-forwarded-for": "192.0.2.1"})).status_code == 200

    assert "X-Forwarded-For" not in caplog.text
    await api.close()


@pytest.mark.parametrize(
    "secrets", [{"password": PASSWORD[:11]}, {"admin_token": ADMIN[:15]}, {"operator_token": "short"}]
)
def test_a_secret_that_can_be_guessed_is_refused(app: qbull.App, secrets: dict[str, str]) -> None:
    with pytest.raises(qbull.ConfigError, match=r"characters and can be guessed\. Use 1[26] or more"):
        qbull.asgi(app, qbull.Access(**secrets))


async def _is_refused(web: Web, token: str) -> bool:
    return (await (await web.person(token)).ask("GET", "/api/me")).status_code == 401
