"""Every endpoint with every role and every method: who is let in is decided by the table, and nothing else."""

from __future__ import annotations

import pytest
from web import ADMIN, OPERATOR, VIEWER, Person, Web, make_admin, make_nobody, open_web  # noqa: F401 - some are fixtures

import qbull
from qbull.api.endpoint import Endpoint, Nothing
from qbull.api.routes import Router
from qbull.api.table import TABLE
from qbull.core.access import TOKEN_ROLES, Role

RANKS: dict[Role, int] = {"open": 0, "viewer": 1, "operator": 2, "admin": 3}
"""Written out here: the order of the product is what is tested."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
PREVIEWS = {"/api/queues/{queue}/operations/preview"}
"""They take a body, and change nothing."""
PATHS = sorted({endpoint.path for endpoint in TABLE})
FIXED = {"viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN}
SCOPES = {"all": (), "its queue": ("sms", "em*"), "another": ("sms",)}
"""The queue in the paths is "email"."""


def real(path: str) -> str:
    """A path with something in the place of its parameters. The queue is there, the rest is not."""
    for name in ("queue", "schedule"):
        path = path.replace("{" + name + "}", "email")
    return "/".join("nothing-such" if part.startswith("{") else part for part in path.split("/"))


def is_allowed(endpoint: Endpoint, role: Role, scope: str, action: str = "") -> bool:
    """What the table says about one cell."""
    if RANKS[role] < RANKS[endpoint.action_roles.get(action, endpoint.role)]:
        return False
    if scope == "all" or endpoint.role == "open":
        return True
    return endpoint.scope in ("queues", "none") or (endpoint.scope == "queue" and scope == "its queue")


def test_the_table_says_who_may_do_what() -> None:
    reads = [e for e in TABLE if e.method == "GET"]
    writes = [e for e in TABLE if e.method != "GET"]

    assert {e.path for e in reads if e.role == "open"} == {
        "/api/queues/health",
        "/healthz",
        "/readyz",
        "/api/openapi.json",
    }
    assert {e.path for e in writes if e.role in ("open", "viewer")} == {"/api/login", "/api/logout"}
    changing = [e for e in writes if e.path not in PREVIEWS]
    assert {e.audit for e in changing if e.role == "operator"} == {
        "signal job",
        "fork job",
        "pause all queues",
        "resume all queues",
        "pause queue",
        "resume queue",
        "enqueue",
        "retry job",
        "promote job",
        "reschedule job",
        "update job",
        "cancel job",
        "retry flow",
        "cancel flow",
        "start operation",
        "redrive",
        "stop operation",
        "acknowledge error",
        "read stack",
        "withdraw acknowledgement",
        "pause schedule",
        "resume schedule",
        "run schedule",
    }
    assert {e.path for e in reads if e.role == "admin"} == {"/api/tokens"}
    assert [e.path for e in changing if e.audit is None] == [], "whatever changes something is written down"
    assert [e.path for e in reads if e.audit is not None] == []


def test_a_token_for_some_queues_has_no_say_in_what_concerns_the_whole_app() -> None:
    of_the_app = {f"{e.method} {e.path}" for e in TABLE if e.scope == "app"}

    assert of_the_app == {
        "GET /api/system",
        "GET /api/limits",
        "PUT /api/limits/{limit}",
        "DELETE /api/limits/{limit}",
        "GET /api/alerts",
        "POST /api/alerts/test",
        "GET /metrics",
        "DELETE /api/sessions",
        "GET /api/tokens",
        "POST /api/tokens",
        "POST /api/tokens/{token}/rotate",
        "DELETE /api/tokens/{token}",
        "GET /api/audit",
        "GET /api/audit/export",
        "GET /api/audit/verify",
    }
    assert all(("{queue}" in e.path) == (e.scope == "queue") for e in TABLE)


def test_every_endpoint_has_a_name_and_a_summary_of_its_own() -> None:
    assert len({e.name for e in TABLE}) == len(TABLE)
    assert all(e.summary and e.handler for e in TABLE)


@pytest.mark.parametrize("path", PATHS)
async def test_each_role_and_scope_gets_what_the_table_says(path: str, app: qbull.App, web: Web) -> None:
    app.queue("email")
    endpoints = {e.method: e for e in TABLE if e.path == path}
    people = {("open", "all"): await web.person(), **await _people(web)}

    for (role, scope), person in people.items():
        for method in METHODS:
            cell = (role, scope, method)
            endpoint = endpoints.get("GET" if method == "HEAD" else method)  # type: ignore[call-overload]
            status = await _status(person, method, real(path))

            if endpoint is None:
                assert status == 405, cell
            elif is_allowed(endpoint, role, scope):
                assert status not in (401, 403, 405, 421, 500), (cell, status)
                assert status != 503 or 503 in endpoint.answers, cell
            else:
                assert status == (401 if role == "open" else 403), (cell, status)


@pytest.mark.parametrize("endpoint", [e for e in TABLE if e.action_roles], ids=lambda e: e.name)
async def test_the_role_for_an_action_in_the_body_is_in_the_table_too(
    endpoint: Endpoint, app: qbull.App, web: Web
) -> None:
    await app.queue("email").pause()

    for action in ("retry", "redrive", "cancel", "promote", "remove", "clean"):
        for (role, scope), person in (await _people(web)).items():
            answer = await person.ask(endpoint.method, real(endpoint.path), {"action": action})

            allowed = is_allowed(endpoint, role, scope, action)
            assert (answer.status_code != 403) == allowed, (action, role, scope, answer.text)
            assert answer.status_code < 500 and answer.status_code != 401


async def _people(web: Web) -> dict[tuple[Role, str], Person]:
    """Somebody for each role and each scope."""
    admin, made = await web.person(ADMIN), dict[tuple[Role, str], Person]()
    for role in TOKEN_ROLES:
        for scope, queues in SCOPES.items():
            body = {"name": f"{role} of {scope}", "role": role, "queues": queues}
            token = FIXED[role] if not queues else (await admin.post("/api/tokens", body))["token"]
            made[role, scope] = await web.person(token)
    return made


async def _status(person: Person, method: str, path: str) -> int:
    """A stream is looked at no further than its head."""
    async with person.client.stream(method, path) as answer:
        return answer.status_code


def test_every_path_is_found_again() -> None:
    routes = Router(TABLE)

    for endpoint in TABLE:
        found = routes.find(real(endpoint.path))
        assert found is not None and found[0][endpoint.method] is endpoint


async def test_what_is_not_in_the_table_is_not_there(nobody: Person) -> None:
    for path in (
        "/api",
        "/api/",
        "/api/nothing",
        "/api/queues/email/jobs/",
        "/api//queues/stats",
        "/metrics/",
        "/.env",
    ):
        await nobody.refused(404, "GET", path)


def test_what_takes_no_body_says_so() -> None:
    assert [e.path for e in TABLE if e.method == "GET" and e.body is not Nothing] == []
