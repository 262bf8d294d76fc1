"""Latency over REST: what workers have counted, by time, queue and task; and marks."""

from __future__ import annotations

import asyncio

import pytest
from web import PASSWORD, Person, Web, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from qbull.store.read import histograms
from qbull.store.store import Store


class Mail:
    def __init__(self, app: qbull.App) -> None:
        queue = app.queue("mail", partitions=1)

        @queue.task
        async def quick() -> None: ...

        @queue.task
        async def slow() -> None:
            await asyncio.sleep(0.05)

        self.quick, self.slow = quick, slow


@pytest.fixture(name="mail")
def make_mail(app: qbull.App) -> Mail:
    return Mail(app)


async def test_runs_of_a_queue_are_shown_by_time_and_task(app: qbull.App, mail: Mail, viewer: Person) -> None:
    async with app.worker():
        jobs = [await task.enqueue() for task in (mail.quick, mail.quick, mail.slow)]
        for job in jobs:
            await job.result(timeout=20)

    told = await viewer.get("/api/queues/mail/latency", span="1h")

    assert told["stepSeconds"] == 60 and told["total"]["runs"] == 3
    assert sum(step["latency"]["runs"] for step in told["steps"]) == 3
    assert sum(n for step in told["steps"] for n in step["durations"]) == 3
    by_task = {one["task"]: one["latency"] for one in told["tasks"]}
    assert (by_task["quick"]["runs"], by_task["slow"]["runs"]) == (2, 1)
    assert by_task["slow"]["run"]["p50"] > 25 > by_task["quick"]["run"]["p99"]
    assert by_task["slow"]["wait"]["p50"] is not None
    one = await viewer.get("/api/queues/mail/latency", span="7d", task="slow")
    assert (one["stepSeconds"], one["total"]["runs"]) == (3600, 1)
    everything = await viewer.get("/api/latency", span="24h")
    assert ("mail", 3) in [(one["queue"], one["latency"]["runs"]) for one in everything["queues"]]


async def test_a_chosen_period_comes_in_the_finest_steps_that_are_kept(
    app: qbull.App, mail: Mail, viewer: Person
) -> None:
    async with app.worker():
        await (await mail.quick.enqueue()).result(timeout=20)

    at = "/api/queues/mail/latency"
    fine = await viewer.get(at, span="24h", **{"from": "2h", "to": "now"})
    coarse = await viewer.get(at, span="24h")
    before = await viewer.get(at, **{"from": "3h", "to": "2h"})
    hours = await viewer.get(at, **{"from": "3d", "to": "now"})

    assert (fine["stepSeconds"], coarse["stepSeconds"], hours["stepSeconds"]) == (60, 600, 3600)
    assert [fine["total"]["runs"], hours["total"]["runs"], before["total"]["runs"]] == [1, 1, 0]
    for wrong in ({"from": "2h"}, {"to": "2h"}, {"from": "1h", "to": "2h"}, {"from": "1h", "to": "x"}):
        await viewer.refused(400, "GET", at, params=wrong)


async def test_counts_that_are_sent_twice_count_once(store: Store, mail: Mail, viewer: Person) -> None:
    for _ in range(2):
        await histograms.add(store, "mail", "the-same-token", {"d:20:quick": 5, "v:8:quick": 5, "w:8": 5})

    told = await viewer.get("/api/queues/mail/latency")

    assert told["total"]["runs"] == 5
    assert "v:8:quick" not in await histograms.read(store, "mail")


async def test_minutes_and_hours_are_bounded(store: Store, mail: Mail) -> None:
    await histograms.add(store, "mail", "a-token", {"d:20:quick": 5})
    base = store.names.queue("mail")

    names = list(await store.server.call("KEYS", "*latency:*"))

    assert len(names) == 2 and all(name.decode().startswith(base) for name in names)
    ages = sorted([await store.server.call("TTL", name) for name in names])
    assert ages[0] <= 26 * 3600 and ages[1] <= 32 * 86400


async def test_pauses_settings_and_worker_starts_are_marks(
    app: qbull.App, mail: Mail, admin: Person, viewer: Person
) -> None:
    async with app.worker():
        await admin.post("/api/queues/mail/pause")
        await admin.post("/api/queues/mail/resume")
        told = await viewer.get("/api/marks", span="1h", queue="mail")

    assert [
        (one["action"], one["target"]) for one in told["marks"] if one["action"] != "workers started"
    ] == [
        ("pause queue", "mail"),
        ("resume queue", "mail"),
    ]
    assert [one["count"] for one in told["marks"] if one["action"] == "workers started"] == [1]


async def test_what_cannot_be_shown_is_refused(viewer: Person, nobody: Person) -> None:
    await viewer.refused(404, "GET", "/api/queues/nothing/latency")
    await viewer.refused(400, "GET", "/api/latency", params={"span": "2h"})
    await nobody.refused(401, "GET", "/api/latency")
