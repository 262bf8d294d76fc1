"""What a browser could be made to send by another site, or under another name, is refused; every answer carries its headers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from web import ADMIN, PASSWORD, Person, Web, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from qbull.api.body import MAX_BODY_DEPTH, too_deep
from qbull.api.dashboard import Dashboard
from qbull.api.guard import SECURITY_HEADERS, name_in

ELSEWHERE = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {},
]


async def logged_in(web: Web) -> Person:
    person = await web.person()
    await person.post("/api/login", {"password": PASSWORD})
    return person


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
async def test_a_session_writes_only_from_our_own_page(web: Web, headers: dict[str, str]) -> None:
    person = await logged_in(web)

    await person.refused(403, "DELETE", "/api/sessions", headers=headers)
    assert (await person.ask("GET", "/api/me", headers=headers)).status_code == 200


@pytest.mark.parametrize("said", ["sec-fetch-site", "origin"])
async def test_our_own_page_may_write(web: Web, said: str) -> None:
    person = await logged_in(web)
    headers = {"sec-fetch-site": "same-origin"} if said == "sec-fetch-site" else {"origin": web.url}

    assert (await person.ask("DELETE", "/api/sessions", headers=headers)).status_code == 200


async def test_a_browser_that_remembers_basic_auth_is_guarded_too(web: Web) -> None:
    person = await web.person()
    tool = httpx.BasicAuth("admin", PASSWORD)

    await person.refused(
        403, "DELETE", "/api/sessions", headers={"origin": "https://evil.example"}, auth=tool
    )
    assert (await person.ask("DELETE", "/api/sessions", auth=tool)).status_code == 200


async def test_nobody_is_logged_in_from_elsewhere(nobody: Person) -> None:
    await nobody.refused(
        403, "POST", "/api/login", {"password": PASSWORD}, headers={"origin": "https://evil.example"}
    )


async def test_a_token_is_proof_enough(admin: Person) -> None:
    headers = {"sec-fetch-site": "cross-site", "host": "anything.example"}

    assert (await admin.ask("DELETE", "/api/sessions", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a" * 300]
)
async def test_a_session_works_only_under_our_own_name(web: Web, host: str) -> None:
    person = await logged_in(web)

    await person.refused(421, "GET", "/api/me", headers={"host": host})
    await person.refused(421, "POST", "/api/login", {"password": PASSWORD}, headers={"host": host})


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:3050", "127.0.0.1", "[::1]:3050", "10.1.2.3:80"])
async def test_addresses_and_the_own_machine_are_our_names(web: Web, host: str) -> None:
    person = await logged_in(web)

    assert (await person.ask("GET", "/api/me", headers={"host": host})).status_code == 200


async def test_more_names_can_be_allowed(app: qbull.App) -> None:
    access = qbull.Access(password=PASSWORD, hosts=("jobs.example.com", ".internal.example"))
    async with opened(app, access) as web:
        person = await logged_in(web)

        for host, status in (("jobs.example.com", 200), ("a.internal.example:80", 200), ("example.com", 421)):
            assert (await person.ask("GET", "/api/me", headers={"host": host})).status_code == status


def test_the_name_in_a_host_header_is_found() -> None:
    found = [name_in(host) for host in ("A.b:80", "[::1]:80", "[::1]", "::1", "x", "")]

    assert found == ["a.b", "::1", "::1", "::1", "x", ""]


@pytest.mark.parametrize(
    "path", ["/healthz", "/api/me", "/nothing", "/api/queues/stats", "/ui/", "/api/openapi.json"]
)
async def test_every_answer_carries_the_headers(admin: Person, nobody: Person, path: str) -> None:
    for person in (admin, nobody):
        answer = await person.client.get(path)

        assert {name.decode() for name, _ in SECURITY_HEADERS} <= set(answer.headers)
        assert "server" not in answer.headers and "access-control-allow-origin" not in answer.headers


async def test_a_body_is_bounded_before_it_is_read(app: qbull.App, admin: Person) -> None:
    app.queue("email")
    large = b'{"task":"x","payload":{"a":"' + b"x" * (app.payload_limit + 100_000) + b'"}}'

    async def in_parts():  # type: ignore[no-untyped-def]
        for start in range(0, len(large), 60_000):
            yield large[start : start + 60_000]

    json = {"content-type": "application/json"}
    await admin.refused(413, "POST", "/api/queues/email/jobs", content=large, headers=json)
    await admin.refused(413, "POST", "/api/queues/email/jobs", content=in_parts(), headers=json)


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {"content-type": "application/json"}, 400),
        (b"\xff\xfe", {"content-type": "application/json"}, 400),
        (b"[]", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "application/json"}, 400),
        (b'{"task":"send","unknown":1}', {"content-type": "application/json"}, 400),
        (b'{"task":1}', {"content-type": "application/json"}, 400),
        (
            b'{"task":"send","payload":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
            {"content-type": "application/json"},
            400,
        ),
        (b'{"task":"send"}', {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b'{"task":"send"}', {"content-type": "text/plain"}, 415),
        (b'{"task":"send"}', {}, 415),
        (b"\x1f\x8b", {"content-type": "application/json", "content-encoding": "gzip"}, 415),
    ],
)
async def test_a_body_that_is_not_right_is_refused(
    app: qbull.App, admin: Person, content: bytes, headers: dict[str, str], status: int
) -> None:
    app.queue("email")

    await admin.refused(status, "POST", "/api/queues/email/jobs", content=content, headers=headers)


async def test_a_problem_names_the_field(app: qbull.App, admin: Person) -> None:
    app.queue("email")
    wrong = await admin.ask("POST", "/api/queues/email/jobs", {"task": "x", "options": {"priority": 11}})
    missing = await admin.ask("POST", "/api/queues/email/jobs", {"payload": {}})
    query = await admin.ask("GET", "/api/queues/email/jobs", params={"start": "x"})
    unknown = await admin.ask("GET", "/api/queues/email/jobs", params={"sate": "failed"})

    assert wrong.json()["errors"] == [{"field": "options.priority", "reason": "expected int <= 10"}]
    assert (
        missing.json()["errors"] == [{"field": "task", "reason": "object is missing"}]
        or missing.json()["errors"][0]["field"] == "task"
    )
    assert query.json()["errors"][0]["field"] == "start"
    assert unknown.json()["errors"][0]["field"] == "sate"


def test_depth_is_counted_outside_of_texts() -> None:
    assert not too_deep(b'{"a":"' + b"[" * 1000 + b'\\""}')
    assert not too_deep(b"[" + b"[]," * 1000 + b"[]]")
    assert too_deep(b"[" * (MAX_BODY_DEPTH + 1) + b"]" * (MAX_BODY_DEPTH + 1))


def test_a_text_that_does_not_end_is_looked_at_once() -> None:
    endless = b'{"password":"' + b'\\"' * 400_000 + b"[" * (MAX_BODY_DEPTH + 1)  # took days, quote by quote

    assert not too_deep(endless)


async def test_mounted_elsewhere_it_keeps_to_its_place(app: qbull.App) -> None:
    app.queue("email").task(_send)
    api = qbull.asgi(app, qbull.Access(admin_token=ADMIN, password=PASSWORD))
    whole = Starlette(routes=[Mount("/jobs", app=api)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(whole), base_url="http://localhost") as client:
        made = await client.post(
            "/jobs/api/queues/email/jobs",
            json={"task": "_send"},
            headers={"authorization": f"Bearer {ADMIN}"},
        )
        there = await client.get(made.headers["location"], headers={"authorization": f"Bearer {ADMIN}"})
        logged = await client.post("/jobs/api/login", json={"password": PASSWORD})

        assert made.headers["location"].startswith("/jobs/api/queues/email/jobs/")
        assert there.json()["id"] == made.json()["jobId"]
        assert "; Path=/jobs/;" in logged.headers["set-cookie"]
    await api.close()


async def _send() -> None: ...


async def test_the_page_is_served_strictly_where_it_was_built(app: qbull.App, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text('<base href="/ui/"><script src="assets/index-4f9a8b7c.js"></script>')
    (tmp_path / "assets" / "index-4f9a8b7c.js").write_text("1")
    (tmp_path / "secret.txt").write_text("s")
    async with opened(app) as web:
        web.api._page = Dashboard(tmp_path / "assets" / "..")
        person = await web.person()

        page = await person.client.get("/ui/queues/email")
        script = await person.client.get("/ui/assets/index-4f9a8b7c.js")
        front = await person.client.get("/")

        assert (
            page.headers["content-type"].startswith("text/html")
            and page.headers["cache-control"] == "no-cache"
        )
        assert (
            "script-src 'self'" in page.headers["content-security-policy"]
            and "unsafe" not in page.headers["content-security-policy"]
        )
        assert "immutable" in script.headers["cache-control"] and script.headers["content-type"].startswith(
            "text/javascript"
        )
        assert (front.status_code, front.headers["location"]) == (307, "/ui/")
        for path in (
            "/ui/../pyproject.toml",
            "/ui/%2e%2e/x.txt",
            "/ui/assets/..%2fsecret.txt",
            "/ui/none.js",
        ):
            assert (await person.client.get(path)).status_code == 404


async def test_without_a_built_page_that_is_said(web: Web, nobody: Person, tmp_path: Path) -> None:
    web.api._page = Dashboard(tmp_path)

    assert "no dashboard" in await nobody.refused(404, "GET", "/ui/")
    seen = await nobody.client.get("/ui/", headers={"accept": "text/html"})
    assert (seen.status_code, seen.headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert "no dashboard" in seen.text


async def test_a_whole_number_may_be_written_with_a_point(app: qbull.App, admin: Person) -> None:
    email = app.queue("email")

    @email.task
    async def send(weight: float) -> None: ...

    body = {"task": "send", "payload": {"weight": 2.0}, "options": {"priority": 3.0, "id": "x"}}
    await admin.post("/api/queues/email/jobs", body)
    body["options"] = {"priority": 3.5}

    assert (await admin.get("/api/queues/email/jobs/x"))["priority"] == 3
    assert "priority" in await admin.refused(400, "POST", "/api/queues/email/jobs", body)


@pytest.mark.parametrize(
    "query",
    ["state=active&limit=null", "state=null", "limit=5&limit=6", "cursor=99999999999999999999999-0/1"],
)
async def test_a_query_that_is_not_right_is_refused(app: qbull.App, viewer: Person, query: str) -> None:
    app.queue("email")

    await viewer.refused(400, "GET", f"/api/queues/email/jobs?{query}")


async def test_what_is_before_everything_is_nothing(viewer: Person) -> None:
    assert (await viewer.get("/api/audit", before="0-0"))["entries"] == []
    assert (await viewer.get("/api/audit", before="1-0"))["entries"] == []
