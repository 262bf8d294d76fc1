"""Clients that were written for the endpoints and shapes of earlier systems work unchanged."""

from __future__ import annotations

import re
from typing import Any

import pytest
from web import Person, Web, make_admin, make_nobody, make_viewer, open_web  # noqa: F401 - some are fixtures

import qbull

COUNTS = {"name", "waiting", "active", "completed", "failed", "delayed", "paused", "total"}
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Sync:
    """Two queues as they had them: each with a cron rule, its own retries and what it keeps."""

    def __init__(self, app: qbull.App) -> None:
        retry = qbull.Retry(attempts=3, backoff="exponential", delay=5)
        keep = qbull.Keep(completed=50, failed=100)
        self.queue = app.queue("serpram-sync", retry=retry, keep=keep)

        @self.queue.cron("*/5 * * * *", name="serpram")
        async def sync_serpram() -> None: ...

        @self.queue.task(retry=qbull.Retry(attempts=1))
        async def sync(type: str = "", fail: bool = False) -> str:  # noqa: A002 - they called it so
            if fail:
                raise ConnectionError(f"SERPRAM does not answer: {type}")
            return type

        ayt = app.queue("ayt-sync")

        @ayt.cron("* * * * *", name="ayt")
        async def sync_ayt() -> None: ...

        self.sync = sync


@pytest.fixture(name="sync")
def make_sync(app: qbull.App) -> Sync:
    return Sync(app)


async def run(app: qbull.App, sync: Sync, *, well: int = 0, badly: int = 0) -> None:
    await sync.sync.enqueue_many([{"type": "manual"}] * well)
    await sync.sync.enqueue_many([{"type": "manual", "fail": True}] * badly)
    async with app.worker(["serpram-sync"]) as worker:
        await worker.drain()


def is_counts(stats: dict[str, Any]) -> bool:
    return stats.keys() >= COUNTS and all(type(stats[name]) is int for name in COUNTS - {"name"})


async def test_the_stats_of_all_queues(app: qbull.App, sync: Sync, viewer: Person) -> None:
    await run(app, sync, well=3, badly=2)

    answer = await viewer.get("/api/queues/stats")

    assert answer["success"] is True and MOMENT.fullmatch(answer["timestamp"])
    assert set(answer["queues"]) == {"serpram-sync", "ayt-sync"}
    serpram = answer["queues"]["serpram-sync"]
    assert all(is_counts(stats) for stats in answer["queues"].values())
    assert (serpram["name"], serpram["completed"], serpram["failed"], serpram["total"]) == (
        "serpram-sync",
        3,
        2,
        5,
    )
    parts = ("waiting", "active", "completed", "failed", "delayed", "cancelled")
    assert serpram["total"] == sum(serpram[name] for name in parts)


async def test_the_stats_of_one_queue(sync: Sync, viewer: Person) -> None:
    await sync.sync.enqueue(type="manual")

    stats = await viewer.get("/api/queues/serpram-sync/stats")

    assert is_counts(stats) and (stats["success"], stats["waiting"]) == (True, 1)


@pytest.mark.parametrize("state", ["waiting", "active", "completed", "failed", "delayed"])
async def test_the_jobs_of_a_state(app: qbull.App, sync: Sync, viewer: Person, state: str) -> None:
    await run(app, sync, well=2, badly=1)
    await sync.sync.options(delay=60).enqueue(type="later")
    await sync.sync.enqueue(type="now")

    jobs = (await viewer.get("/api/queues/serpram-sync/jobs", state=state, start=0, end=10))["jobs"]

    expected = {"waiting": 1, "active": 0, "completed": 2, "failed": 1, "delayed": 1}
    assert [job["state"] for job in jobs] == [state] * expected[state]
    if state == "failed":
        assert jobs[0]["failedReason"] == "ConnectionError: SERPRAM does not answer: manual"


async def test_a_queue_is_paused_and_resumed(app: qbull.App, sync: Sync, admin: Person) -> None:
    await sync.sync.enqueue(type="manual")

    paused = await admin.post("/api/queues/serpram-sync/pause")
    held = await admin.get("/api/queues/serpram-sync/stats")
    resumed = await admin.post("/api/queues/serpram-sync/resume")

    assert (paused["success"], resumed["success"]) == (True, True)
    assert (held["isPaused"], held["paused"], held["waiting"], held["total"]) == (True, 1, 0, 1)
    assert (await admin.get("/api/queues/serpram-sync/stats"))["paused"] == 0


@pytest.mark.parametrize("is_paused", [False, True])
async def test_the_six_counts_add_up_to_the_total(
    app: qbull.App, sync: Sync, admin: Person, is_paused: bool
) -> None:
    await run(app, sync, well=2, badly=1)
    await sync.sync.options(delay=60).enqueue(type="later")
    await sync.sync.enqueue(type="now")
    await (await sync.sync.enqueue(type="never")).cancel()
    if is_paused:
        await admin.post("/api/queues/serpram-sync/pause")

    stats = await admin.get("/api/queues/serpram-sync/stats")

    assert sum(stats[name] for name in COUNTS - {"name", "total"}) == stats["total"] == 5
    assert stats["cancelled"] == 1


async def test_completed_jobs_are_cleaned_after_a_grace_period_in_milliseconds(
    app: qbull.App, sync: Sync, admin: Person
) -> None:
    await run(app, sync, well=3)

    kept = await admin.post("/api/queues/serpram-sync/clean/completed", {"gracePeriod": 3_600_000})
    gone = await admin.post("/api/queues/serpram-sync/clean/completed", {"gracePeriod": 0})

    assert (kept["success"], kept["count"], gone["count"]) == (True, 0, 3)


async def test_failed_jobs_are_cleaned_without_a_body(app: qbull.App, sync: Sync, admin: Person) -> None:
    await run(app, sync, badly=2)

    answer = await admin.ask("POST", "/api/queues/serpram-sync/clean/failed")

    assert (answer.status_code, answer.json()["count"]) == (200, 2)


@pytest.mark.parametrize(("name", "queue"), [("serpram", "serpram-sync"), ("ayt", "ayt-sync")])
async def test_a_schedule_is_run_by_hand(
    app: qbull.App, sync: Sync, admin: Person, name: str, queue: str
) -> None:
    answer = await admin.post(f"/api/queues/{name}/run")

    assert answer["success"] is True and MOMENT.fullmatch(answer["timestamp"])
    assert name in answer["message"]
    job = await admin.get(f"/api/queues/{queue}/jobs/{answer['jobId']}")
    assert (job["queue"], job["schedule"], job["state"]) == (queue, name, "waiting")


@pytest.mark.parametrize(
    "path",
    ["serpram-sync/pause", "serpram-sync/resume", "serpram-sync/clean/completed", "serpram-sync/clean/failed", "serpram/run", "ayt/run"],
)  # fmt: skip
async def test_these_need_the_role_admin(sync: Sync, viewer: Person, nobody: Person, path: str) -> None:
    await viewer.refused(403, "POST", f"/api/queues/{path}")
    await nobody.refused(401, "POST", f"/api/queues/{path}")


async def test_health_needs_no_token(app: qbull.App, sync: Sync, nobody: Person) -> None:
    await run(app, sync, well=2)

    health = await nobody.get("/api/queues/health")

    assert health["status"] == "healthy" and health["message"]
    assert (
        is_counts(health["details"]["serpram-sync"]) and health["details"]["serpram-sync"]["completed"] == 2
    )
    assert MOMENT.fullmatch(health["timestamp"])


async def test_a_dead_letter_with_its_own_id_is_found_and_retried(
    app: qbull.App, sync: Sync, admin: Person
) -> None:
    await sync.sync.options(id="email:verify:user-123").enqueue(type="x", fail=True)
    async with app.worker(["serpram-sync"]) as worker:
        await worker.drain()
    path = "/api/queues/serpram-sync/jobs/email:verify:user-123"

    job = await admin.get(path)
    retried = await admin.post(f"{path}/retry")

    assert (job["state"], job["failedReason"][:15]) == ("failed", "ConnectionError")
    assert "Traceback" in job["stacktrace"]
    assert (retried["success"], retried["jobId"], retried["status"]) == (
        True,
        "email:verify:user-123",
        "waiting",
    )


async def test_basic_auth_with_the_password_of_the_page(web: Web, sync: Sync) -> None:
    person = await web.person()

    answer = await person.ask("GET", "/api/queues/stats", auth=("admin", "a password for tests"))

    assert answer.status_code == 200
