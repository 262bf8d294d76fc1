"""Shared limits over REST and in metrics: their use, the jobs that wait, changes with role and audit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from web import ACCESS, ADMIN, VIEWER, Person, Web, make_admin, make_operator, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually


class CrmApp:
    """Three jobs of customer a and one of customer b have run; two of a wait."""

    def __init__(self, app: qbull.App) -> None:
        self.app = app
        self.crm = qbull.Limit("crm", rate=qbull.Rate(3, per=60), concurrency=5, daily=1000)
        self.exports = app.queue("exports")

        @self.exports.task(limit=self.crm.use(key="{customer}"))
        async def export(customer: str) -> None: ...

        self.export = export

    async def some_wait(self) -> bool:
        stats = await self.exports.stats()
        return (stats.completed, stats.waiting) == (4, 2)


@pytest.fixture(name="crm")
async def make_crm_app(app: qbull.App) -> AsyncIterator[CrmApp]:
    crm = CrmApp(app)
    async with app.worker():
        for customer in "aaabaa":
            await crm.export.enqueue(customer)
        await eventually(crm.some_wait)
        yield crm


async def only(person: Person) -> dict[str, Any]:
    [limit] = (await person.get("/api/limits"))["limits"]
    return dict(limit)


async def test_limits_are_listed_with_their_use_and_waiting_jobs(crm: CrmApp, viewer: Person) -> None:
    limit = await only(viewer)

    assert (limit["name"], limit["rate"]) == ("crm", {"count": 3, "per": 60.0})
    assert (limit["concurrency"], limit["daily"], limit["changed"]) == (5, 1000, [])
    assert (limit["spent"], limit["granted"] - limit["returned"]) == (4, 4)
    assert (limit["waiting"], limit["queues"]) == (2, {"exports": 2})
    assert limit["since"] is not None
    assert limit["keys"] == [
        {"key": "a", "running": 0, "used": 3, "spent": 3, "waiting": 2},
        {"key": "b", "running": 0, "used": 1, "spent": 1, "waiting": 0},
    ]


async def test_a_change_holds_at_once_and_is_in_the_audit_log(crm: CrmApp, admin: Person) -> None:
    changed = await admin.put("/api/limits/crm", {"rate": {"count": 4, "per": 60}, "daily": None})
    assert changed["limit"]["changed"] == ["rate", "daily"]

    async def one_more_ran() -> bool:
        return (await crm.exports.stats()).completed == 5

    await eventually(one_more_ran)
    reset = await admin.delete("/api/limits/crm?setting=rate")
    assert (reset["limit"]["rate"], reset["limit"]["changed"]) == ({"count": 3, "per": 60.0}, ["daily"])
    entries = [one for one in (await admin.get("/api/audit"))["entries"] if one["action"].endswith("limit")]
    assert [(one["action"], one["target"]) for one in entries] == [
        ("reset limit", "crm"),
        ("change limit", "crm"),
    ]
    details = entries[1]["detail"]
    assert (details["before"]["daily"], details["after"]["daily"]) == (1000, None)


async def test_only_admins_change_a_limit(crm: CrmApp, operator: Person, admin: Person) -> None:
    await operator.refused(403, "PUT", "/api/limits/crm", {"concurrency": 1})
    await operator.refused(403, "DELETE", "/api/limits/crm")
    assert (await only(admin))["concurrency"] == 5


async def test_a_limit_that_nobody_has_declared_cannot_be_changed(web: Web, admin: Person) -> None:
    assert "no worker has declared it" in await admin.refused(404, "PUT", "/api/limits/no", {"daily": 5})
    assert "no worker has declared it" in await admin.refused(404, "DELETE", "/api/limits/no")


async def test_wrong_values_of_a_limit_are_refused(crm: CrmApp, admin: Person) -> None:
    for body in ({}, {"concurrency": 0}, {"daily": "much"}, {"rate": {"count": 0}}, {"fast": True}):
        await admin.refused(400, "PUT", "/api/limits/crm", body)


@pytest.mark.parametrize("hidden", [{"hide_payloads": True}, {"redact": ["customer"]}])
async def test_keys_of_a_limit_are_hidden_like_the_arguments_that_they_come_from(
    crm: CrmApp, hidden: dict[str, Any]
) -> None:
    access = qbull.Access(password=ACCESS.password, admin_token=ADMIN, viewer_token=VIEWER, **hidden)
    async with opened(crm.app, access) as web:
        viewer = await web.person(VIEWER)
        assert (await only(viewer))["keys"] == []


async def test_a_token_for_some_queues_sees_no_limits(crm: CrmApp, admin: Person, web: Web) -> None:
    made = await admin.post("/api/tokens", {"name": "exports", "role": "viewer", "queues": ["exports"]})
    scoped = await web.person(made["token"])
    await scoped.refused(403, "GET", "/api/limits")


async def test_prometheus_reads_the_use_of_limits(crm: CrmApp, viewer: Person) -> None:
    text = (await viewer.client.get("/metrics")).text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("qbull_limit"))

    def value(name: str) -> float:
        return float(samples[f'qbull_limit_{name}{{limit="crm"}}'])

    assert [value(name) for name in ("rate", "window_seconds", "concurrency", "daily")] == [3, 60, 5, 1000]
    assert (value("spent"), value("running")) == (4, 0)
    assert value("oldest_waiting_seconds") > 0
    assert value("granted_total") - value("returned_total") == 4
    assert samples['qbull_limit_waiting_jobs{limit="crm",queue="exports"}'] == "2"
