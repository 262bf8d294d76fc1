"""The published values of a durable job over HTTP: all of them by name, without what the caller may not see."""

from __future__ import annotations

from dataclasses import replace

import pytest
from web import ACCESS, VIEWER, Person, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull


async def published(app: qbull.App) -> qbull.Job[None]:
    @app.queue("orders").task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        await job.publish("status", {"state": "packing", "password": "rose"})
        await job.publish("parcels", 2)
        await job.publish("secret", "tulip")

    job = await work.enqueue()
    async with app.worker(["orders"]):
        await job.result(timeout=20)
    return job


async def test_published_values_are_shown_by_name(app: qbull.App, viewer: Person) -> None:
    job = await published(app)

    shown = await viewer.get(f"/api/queues/orders/jobs/{job.id}/published")

    assert shown["jobId"] == job.id
    assert shown["published"] == {
        "parcels": 2,
        "secret": "tulip",
        "status": {"state": "packing", "password": "rose"},
    }
    assert "no job unknown" in await viewer.refused(404, "GET", "/api/queues/orders/jobs/unknown/published")


@pytest.mark.parametrize(
    ("access", "parcels", "status"),
    [
        ({"redact": ("password", "secret")}, 2, {"state": "packing", "password": "[redacted]"}),
        ({"hide_payloads": True}, None, None),
    ],
)
async def test_published_values_are_redacted_like_payloads(
    app: qbull.App, access: dict[str, object], parcels: object, status: object
) -> None:
    job = await published(app)

    async with opened(app, replace(ACCESS, **access)) as web:  # type: ignore[arg-type]
        viewer = await web.person(VIEWER)
        shown = await viewer.get(f"/api/queues/orders/jobs/{job.id}/published")

    assert shown["published"].pop("secret") in (None, "[redacted]")
    assert shown["published"] == {"parcels": parcels, "status": status}
