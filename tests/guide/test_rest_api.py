"""The REST API: jobs over HTTP, with a token."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from test_single_sign_on import signing_on

import qbull

TOKEN = "a-token-that-only-we-know"


@pytest.fixture(name="email")
def declare_email(app: qbull.App) -> qbull.Queue:
    email = app.queue("email", retry=qbull.Retry(attempts=1))

    @email.task(id="verify:{user_id}")
    async def verify(user_id: str, password: str = "") -> str:
        if not user_id:
            raise ValueError(f"no user, but the password {password}")
        return f"sent to {user_id}"

    return email


@pytest.fixture(name="client")
async def open_client(app: qbull.App, email: qbull.Queue) -> AsyncIterator[httpx.AsyncClient]:
    """The API mounted in an application of ours."""
    access = qbull.Access(admin_token=TOKEN, viewer_token=f"{TOKEN}-to-look", redact=("password",))
    api = qbull.asgi(app, access)
    web = Starlette(routes=[Mount("/jobs", app=api)])
    transport = httpx.ASGITransport(web)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://shop.example/jobs", headers=headers
    ) as client:
        yield client
    await api.close()


async def test_a_job_is_asked_for_and_asked_about(app: qbull.App, client: httpx.AsyncClient) -> None:
    asked = await client.post("/api/queues/email/jobs", json={"task": "verify", "payload": {"user_id": "u1"}})

    assert (asked.status_code, asked.json()["jobId"], asked.json()["status"]) == (202, "verify:u1", "waiting")
    async with app.worker() as worker:
        await worker.drain()
    job = (await client.get(f"http://shop.example{asked.headers['location']}")).json()
    assert (job["state"], job["result"], job["attempt"]) == ("completed", "sent to u1", 1)


async def test_single_sign_on_lets_people_in_with_a_role(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    async with signing_on(
        app, role_claim="groups", admins=("platform",), operators=(), viewers=("*",)
    ) as there:
        there.provider.person = {"sub": "1", "email": "ada@example.com", "groups": ["platform"]}
        ada, guest = there.browser(), there.browser()
        await ada.log_in()
        there.provider.person = {"sub": "2", "email": "bob@example.com"}
        await guest.log_in()

        assert [(who["name"], who["role"]) for who in (await ada.me(), await guest.me())] == [
            ("ada@example.com", "admin"),
            ("bob@example.com", "viewer"),
        ]


async def test_asking_twice_with_an_id_adds_nothing(client: httpx.AsyncClient) -> None:
    wanted = {"task": "verify", "payload": {"user_id": "u1"}}

    answers = [(await client.post("/api/queues/email/jobs", json=wanted)).json() for _ in range(2)]

    assert [answer["created"] for answer in answers] == [True, False]
    assert (await client.get("/api/queues/email/stats")).json()["waiting"] == 1


async def test_arguments_are_checked_like_a_call(client: httpx.AsyncClient) -> None:
    refused = await client.post("/api/queues/email/jobs", json={"task": "verify", "payload": {"user_id": 5}})

    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/problem+json"
    assert "user_id" in refused.json()["detail"]


async def test_options_are_those_of_python(client: httpx.AsyncClient) -> None:
    options = {"delay": 60, "priority": 1, "key": "+54", "id": "a/b ?#%", "timeout": 5}
    asked = await client.post(
        "/api/queues/email/jobs", json={"task": "verify", "payload": {"user_id": "u"}, "options": options}
    )

    job = (await client.get(f"http://shop.example{asked.headers['location']}")).json()

    assert asked.json()["status"] == "delayed"
    assert (job["id"], job["state"], job["key"], job["priority"]) == ("a/b ?#%", "delayed", "+54", 1)
    assert job["dueAt"].endswith("Z")


async def test_a_viewer_may_look_and_not_act(client: httpx.AsyncClient) -> None:
    viewer = {"authorization": f"Bearer {TOKEN}-to-look"}
    wanted = {"task": "verify", "payload": {"user_id": "u1"}}

    looked = await client.get("/api/queues/stats", headers=viewer)
    acted = await client.post("/api/queues/email/jobs", json=wanted, headers=viewer)
    without = await client.get("/api/queues/stats", headers={"authorization": ""})

    assert (looked.status_code, acted.status_code, without.status_code) == (200, 403, 401)


async def test_hidden_fields_are_hidden_wherever_they_turn_up(
    app: qbull.App, client: httpx.AsyncClient
) -> None:
    await client.post(
        "/api/queues/email/jobs",
        json={"task": "verify", "payload": {"user_id": "", "password": "s3cret!"}, "options": {"id": "x"}},
    )
    async with app.worker() as worker:
        await worker.drain()

    shown = await client.get("/api/queues/email/jobs", params={"state": "failed"})

    assert shown.json()["jobs"][0]["payload"] == {"user_id": "", "password": "[redacted]"}
    assert "no user, but the password [redacted]" in shown.json()["jobs"][0]["failedReason"]
    assert "s3cret!" not in shown.text + (await client.get("/api/queues/email/jobs/x/history")).text


async def test_many_jobs_are_dealt_with_at_a_time(app: qbull.App, client: httpx.AsyncClient) -> None:
    for n in range(5):
        options = {"id": f"x{n}"}
        await client.post(
            "/api/queues/email/jobs", json={"task": "verify", "payload": {"user_id": ""}, "options": options}
        )
    async with app.worker() as worker:
        await worker.drain()
        await client.post("/api/queues/email/pause")

    matching = await client.get(
        "/api/queues/email/matching", params={"state": "failed", "errorContains": "no user"}
    )
    redriven = await client.post("/api/queues/email/redrive", json={"errorContains": "no user", "limit": 3})

    assert (matching.json()["count"], redriven.status_code, redriven.json()["count"]) == (5, 200, 3)
    operation = (await client.get(f"/api/operations/{redriven.json()['operationId']}")).json()["operation"]
    assert (operation["state"], operation["done"], operation["action"]) == ("done", 3, "redrive")


async def test_a_job_says_why_it_is_not_running(client: httpx.AsyncClient) -> None:
    await client.post("/api/queues/email/jobs", json={"task": "verify", "payload": {"user_id": "u1"}})

    why = (await client.get("/api/queues/email/jobs/verify:u1/why")).json()

    assert why["reasons"][0]["code"] == "no-worker"
    assert "qbull worker" in why["reasons"][0]["text"]


async def test_the_document_describes_it(client: httpx.AsyncClient) -> None:
    described = (await client.get("/api/openapi.json")).json()

    assert described["openapi"].startswith("3.1")
    assert {"get", "post"} <= set(described["paths"]["/api/queues/{queue}/jobs"])


async def test_health_is_for_everybody_and_in_words(client: httpx.AsyncClient) -> None:
    health = await client.get("/api/queues/health", headers={"authorization": ""})

    assert (health.status_code, health.json()["status"]) == (200, "healthy")
    assert health.json()["details"]["email"]["waiting"] == 0


def test_importing_qbull_does_not_import_the_web_framework() -> None:
    code = "import qbull, sys; assert not {'starlette', 'uvicorn', 'qbull.api'} & set(sys.modules)"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
