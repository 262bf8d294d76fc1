"""Every endpoint with every role and every method: who is let in is decided by the table, and nothing else."""

from __future__ import annotations

import pytest
from web import Person, make_admin, make_nobody, make_viewer, open_web  # noqa: F401 - some are fixtures

import qbull
from qbull.api.endpoint import Nothing
from qbull.api.routes import Router
from qbull.api.table import TABLE

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
PATHS = sorted({endpoint.path for endpoint in TABLE})
PEOPLE = ("open", "viewer", "admin")
MAY = {"open": {"open"}, "viewer": {"open", "viewer"}, "admin": {"open", "viewer", "admin"}}


def real(path: str) -> str:
    """A path with something in the place of its parameters. The queue is there, the rest is not."""
    for name in ("queue", "schedule"):
        path = path.replace("{" + name + "}", "email")
    return "/".join("nothing-such" if part.startswith("{") else part for part in path.split("/"))


def test_the_table_says_who_may_do_what() -> None:
    reads = [e for e in TABLE if e.method == "GET"]
    writes = [e for e in TABLE if e.method != "GET"]

    assert {e.path for e in reads if e.role == "open"} == {
        "/api/queues/health",
        "/healthz",
        "/readyz",
        "/api/openapi.json",
    }
    assert {e.path for e in writes if e.role != "admin"} == {"/api/login", "/api/logout"}
    assert {e.path for e in reads if e.role == "admin"} == {"/api/tokens"}
    assert [e.path for e in writes if e.audit is None] == [], "whatever changes something is written down"
    assert [e.path for e in reads if e.audit is not None] == []


def test_every_endpoint_has_a_name_and_a_summary_of_its_own() -> None:
    assert len({e.name for e in TABLE}) == len(TABLE)
    assert all(e.summary and e.handler for e in TABLE)


@pytest.mark.parametrize("path", PATHS)
async def test_each_role_gets_what_the_table_says(
    path: str, app: qbull.App, nobody: Person, viewer: Person, admin: Person
) -> None:
    app.queue("email")
    endpoints = {e.method: e for e in TABLE if e.path == path}
    cells = [
        (role, person, method)
        for role, person in zip(PEOPLE, (nobody, viewer, admin), strict=True)
        for method in METHODS
    ]

    for role, person, method in cells:
        endpoint = endpoints.get("GET" if method == "HEAD" else method)  # type: ignore[call-overload]
        status = await _status(person, method, real(path))

        if endpoint is None:
            assert status == 405, (role, method)
        elif endpoint.role in MAY[role]:
            assert status not in (401, 403, 405, 421, 500), (role, method, status)
            assert status != 503 or 503 in endpoint.answers, (role, method)
        else:
            assert status == (401 if role == "open" else 403), (role, method)


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
