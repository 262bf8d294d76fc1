"""Queues through the API: what they are, their settings, minutes and partitions; workers, schedules, the system, the audit, health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from web import ADMIN, PASSWORD, Person, Web, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.store.store import Store
from qbull.store.verbs import audit_log
from topology import COMMON, Node, wait_for
from topology import PASSWORD as SECRET


@pytest.fixture(name="email")
def declare_email(app: qbull.App) -> qbull.Queue:
    email = app.queue("email", partitions=2, concurrency=3)

    @email.task
    async def send(to: str, copies: int = 1) -> str:
        return to

    return email


async def test_a_queue_says_what_it_is(app: qbull.App, email: qbull.Queue, viewer: Person) -> None:
    async with app.worker():
        shown = await viewer.get("/api/queues/email")

    assert (shown["name"], shown["partitions"], shown["order"], shown["workers"], shown["slots"]) == (
        "email",
        2,
        None,
        1,
        3,
    )
    assert [task["name"] for task in shown["tasks"]] == ["send"]
    schema = shown["tasks"][0]["arguments"]
    arguments = schema["$defs"]["Arguments"] if "$defs" in schema else schema
    assert arguments["properties"]["to"] == {"type": "string"} and arguments["required"] == ["to"]


async def test_a_queue_whose_code_is_elsewhere_is_known_too(
    server_url: str, app: qbull.App, web: Web
) -> None:
    async with qbull.App(server_url, prefix="test") as other:
        invoices = other.queue("invoices")

        @invoices.task
        async def print_it(n: int) -> None: ...

        await print_it.enqueue(1)
    admin = await web.person(ADMIN)

    shown = await admin.get("/api/queues/invoices")
    asked = await admin.post("/api/queues/invoices/jobs", {"task": "print_it", "payload": {"n": 2}})

    assert (shown["declaredHere"], shown["tasks"]) == (False, [{"name": "print_it", "arguments": None}])
    assert asked["status"] == "waiting"
    assert (await admin.get("/api/queues/stats"))["queues"]["invoices"]["waiting"] == 2
    await admin.refused(404, "POST", "/api/queues/invoices/jobs", {"task": "burn_it"})


async def test_settings_are_changed_and_reset(email: qbull.Queue, admin: Person) -> None:
    wanted = {
        "concurrency": 20,
        "rate": {"count": 100, "per": 60},
        "maxActive": 7,
        "retry": {"delays": [1, 5]},
    }
    changed = await admin.put("/api/queues/email/settings", wanted)
    one = await admin.put("/api/queues/email/settings", {"rate": None})
    reset = await admin.delete("/api/queues/email/settings?setting=concurrency")
    all_reset = await admin.delete("/api/queues/email/settings")

    assert (changed["settings"]["concurrency"], changed["settings"]["max_active"]) == (20, 7)
    assert changed["settings"]["rate"] == {"count": 100, "per": 60.0}
    assert changed["changed"]["retry"]["by"] == "QBULL_ADMIN_TOKEN"
    assert (one["settings"]["rate"], one["settings"]["concurrency"]) == (None, 20)
    assert (reset["settings"]["concurrency"], reset["settings"]["max_active"]) == (3, 7)
    assert all_reset["changed"] == {}
    assert all_reset["history"][0]["by"] == "QBULL_ADMIN_TOKEN"


async def test_timeout_and_retention_are_live_settings(email: qbull.Queue, admin: Person) -> None:
    wanted = {"timeout": 90, "keep": {"completedFor": 3600, "failed": 50}}
    changed = await admin.put("/api/queues/email/settings", wanted)
    none = await admin.put("/api/queues/email/settings", {"timeout": None})
    reset = await admin.delete("/api/queues/email/settings?setting=keep")

    assert changed["settings"]["timeout"] == 90
    assert changed["settings"]["keep"] == {
        "completed": None,
        "completed_for": 3600.0,
        "failed": 50,
        "failed_for": None,
    }
    assert (await email.live()).settings.timeout is None is none["settings"]["timeout"]
    assert reset["settings"]["keep"]["failed"] == 100_000


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"concurrency": 0},
        {"concurrency": 100_000},
        {"rate": {"count": 0}},
        {"retry": {"attempts": 0}},
        {"partitions": 5},
        {"timeout": 0},
        {"keep": {"completed": -1}},
        {"keep": None},
        {"rate": {}},
    ],
    ids=str,
)
async def test_settings_that_make_no_sense_are_refused(
    email: qbull.Queue, admin: Person, wanted: dict[str, Any]
) -> None:
    await admin.refused(400, "PUT", "/api/queues/email/settings", wanted)


async def test_what_happened_is_counted_by_the_minute(
    app: qbull.App, email: qbull.Queue, viewer: Person
) -> None:
    send = email.tasks["send"]
    await qbull.task.Call[..., Any](email, send).enqueue_many([{"to": "a"}] * 5)
    async with app.worker() as worker:
        await worker.drain()

    minutes = (await viewer.get("/api/queues/email/metrics", minutes=3))["minutes"]
    day = (await viewer.get("/api/queues/email/metrics", minutes=1440))["minutes"]

    assert len(minutes) == 3 and len(day) == 1440
    assert sum(minute["enqueued"] for minute in minutes) == 5
    assert sum(minute["completed"] for minute in minutes) == 5
    assert [minute["at"] for minute in day] == sorted({minute["at"] for minute in day})


async def test_partitions_and_workers_say_who_reads_what(
    app: qbull.App, email: qbull.Queue, viewer: Person
) -> None:
    async with app.worker():
        partitions = await viewer.get("/api/queues/email/partitions")
        workers = (await viewer.get("/api/workers"))["workers"]

    assert [one["partition"] for one in partitions["partitions"]] == [0, 1]
    assert [one["readers"][0]["worker"] for one in partitions["partitions"]] == [workers[0]["id"]] * 2
    assert workers[0]["queues"]["email"]["partitions"] == [0, 1]


async def test_the_system_says_how_it_keeps_jobs(viewer: Person) -> None:
    system = await viewer.get("/api/system")

    [server] = system["servers"]
    assert (server["product"], server["appendOnly"], server["fsync"], server["eviction"]) == (
        "Valkey",
        True,
        "always",
        "noeviction",
    )
    assert server["usedMemory"] > 0 and abs(system["clockSkewMs"]) < 1000
    assert "@" not in server["address"]


# Schedules.


async def test_a_schedule_is_made_changed_and_removed(
    app: qbull.App, email: qbull.Queue, admin: Person
) -> None:
    path = "/api/schedules/daily"
    made = await admin.put(
        path,
        {"task": "email/send", "cron": "0 9 * * *", "tz": "America/Argentina/Cordoba", "args": {"to": "all"}},
    )
    previewed = await admin.get(f"{path}/preview", count=3)
    paused = await admin.post(f"{path}/pause")
    resumed = await admin.post(f"{path}/resume")
    changed = await admin.put(path, {"task": "send", "every": 60, "args": {"to": "some"}})
    ran = await admin.post(f"{path}/run")

    assert (made["schedule"]["source"], made["schedule"]["queue"], len(made["schedule"]["next"])) == (
        "run time",
        "email",
        5,
    )
    assert len(previewed["next"]) == 3 and previewed["local"][0].endswith("T09:00:00.000-03:00")
    assert previewed["next"][0].endswith("T12:00:00.000Z")
    assert (paused["schedule"]["paused"], resumed["schedule"]["paused"]) == (True, False)
    assert (changed["schedule"]["every"], changed["schedule"]["args"]) == (60, {"to": "some"})
    assert (await admin.get(f"/api/queues/email/jobs/{ran['jobId']}"))["payload"] == {
        "to": "some",
    }
    assert [one["name"] for one in (await admin.get("/api/schedules"))["schedules"]] == ["daily"]
    await admin.delete(path)
    await admin.refused(404, "GET", path)


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"task": "email/send"}, 400),
        ({"task": "email/send", "cron": "every day", "args": {"to": "x"}}, 400),
        ({"task": "email/send", "cron": "* * * * *", "every": 5, "args": {"to": "x"}}, 400),
        ({"task": "email/send", "every": 5, "tz": "Mars/Olympus", "args": {"to": "x"}}, 400),
        ({"task": "email/send", "every": 5, "args": {"to": 5}}, 400),
        ({"task": "email/send", "every": 5, "args": {"to": "x"}, "start": "soon"}, 400),
        ({"task": "email/nothing", "every": 5}, 404),
        ({"task": "no/thing", "every": 5}, 404),
        ({"every": 5}, 400),
    ],
    ids=str,
)
async def test_a_schedule_that_makes_no_sense_is_refused(
    email: qbull.Queue, admin: Person, wanted: dict[str, Any], status: int
) -> None:
    await admin.refused(status, "PUT", "/api/schedules/daily", wanted)
    assert (await admin.get("/api/schedules"))["schedules"] == []


# Who did what.


async def test_every_call_that_changes_something_is_written_down_once(
    email: qbull.Queue, admin: Person, viewer: Person
) -> None:
    await admin.post("/api/queues/email/pause")
    await viewer.refused(403, "POST", "/api/queues/email/resume")
    await admin.refused(404, "POST", "/api/queues/nothing/pause")
    await admin.refused(400, "PUT", "/api/queues/email/settings", {})
    await viewer.get("/api/queues/stats")

    entries = (await viewer.get("/api/audit"))["entries"]

    assert [(e["who"], e["action"], e["target"], e["status"]) for e in reversed(entries)] == [
        ("QBULL_ADMIN_TOKEN", "pause queue", "email", 200),
        ("QBULL_VIEWER_TOKEN", "resume queue", "email", 403),
        ("QBULL_ADMIN_TOKEN", "pause queue", "nothing", 404),
        ("QBULL_ADMIN_TOKEN", "change settings", "email", 400),
    ]
    assert {e["address"] for e in entries} == {"127.0.0.1"}


async def test_log_ins_are_written_down_without_passwords(
    nobody: Person, admin: Person, store: Store
) -> None:
    await nobody.post("/api/login", {"password": PASSWORD})
    await nobody.refused(401, "POST", "/api/login", {"password": "a wrong one"})

    entries = (await admin.get("/api/audit"))["entries"]
    raw = repr(await store.server.call("XRANGE", store.names.trail, "-", "+"))

    assert [(e["who"], e["action"], e["status"]) for e in entries] == [
        ("nobody", "log in", 401),
        ("admin", "log in", 200),
    ]
    assert PASSWORD not in raw and "a wrong one" not in raw


async def test_enqueues_are_counted_together(email: qbull.Queue, admin: Person) -> None:
    wanted = {"task": "send", "payload": {"to": "x"}}
    await asyncio.gather(*(admin.post("/api/queues/email/jobs", wanted) for _ in range(20)))
    await admin.refused(404, "POST", "/api/queues/email/jobs", {"task": "nothing"})

    async def entries() -> list[tuple[str, str, int, int]]:
        found = (await admin.get("/api/audit"))["entries"]
        there = [(e["action"], e["target"], e["status"], e["count"]) for e in found]
        return there if sum(count for *_, status, count in there if status == 202) == 20 else []

    found = await eventually(entries)
    assert ("enqueue", "email/nothing", 404, 1) in found and len(found) <= 4


async def test_the_audit_is_read_page_by_page_and_bounded(store: Store, viewer: Person) -> None:
    await audit_log.write(
        store, [audit_log.AuditLogEntry("ada", "admin", "token", "pause queue", f"q{n}") for n in range(250)]
    )

    seen: list[str] = []
    query: dict[str, Any] = {"limit": 100}
    while True:
        page = await viewer.get("/api/audit", **query)
        seen += [entry["target"] for entry in page["entries"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]

    assert seen == [f"q{n}" for n in reversed(range(250))]


async def test_strangers_cannot_push_out_what_people_did(
    email: qbull.Queue, store: Store, admin: Person, nobody: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(audit_log.MAX_AUDIT_ENTRIES, "trail", 10)
    monkeypatch.setitem(audit_log.MAX_AUDIT_ENTRIES, "strangers", 5)
    await admin.post("/api/queues/email/pause")

    for n in range(20):
        await nobody.refused(401, "POST", f"/api/queues/q{n}/pause")

    entries = (await admin.get("/api/audit"))["entries"]
    assert [e["target"] for e in entries] == ["q19", "q18", "q17", "q16", "q15", "email"]
    older = (await admin.get("/api/audit", limit=2, before=entries[3]["id"]))["entries"]
    assert [e["target"] for e in older] == ["q15", "email"]


async def test_the_trail_is_kept_by_count_and_by_age(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(audit_log.MAX_AUDIT_ENTRIES, "trail", 10)
    await audit_log.write(
        store, [audit_log.AuditLogEntry("ada", "admin", "token", f"a{n}") for n in range(30)]
    )
    assert [found.entry.action for found in await audit_log.read(store, 100)] == [
        f"a{n}" for n in range(29, 19, -1)
    ]

    monkeypatch.setattr(audit_log, "AUDIT_RETENTION_SECONDS", 0)
    await audit_log.write(store, [audit_log.AuditLogEntry("ada", "admin", "token", "last")])
    assert len(await audit_log.read(store, 100)) <= 10


# Health.


@pytest.fixture(name="away")
async def open_away(tmp_path: Path) -> AsyncIterator[tuple[qbull.App, Node]]:
    """An app whose server can be killed."""
    node = Node(tmp_path / "server", COMMON)
    node.start()
    wait_for(node.answers)
    async with qbull.App(f"redis://:{SECRET}@{node.place}/0") as app:
        app.queue("email")
        yield app, node
    node.kill()


async def test_keys_that_wait_for_a_person_are_said_and_hinder_nothing_else(
    app: qbull.App, nobody: Person, viewer: Person
) -> None:
    pay = app.queue("pay", partitions=3, order="key", on_failed="halt", retry=qbull.Retry(attempts=1))

    @pay.task(key="{account}")
    async def charge(account: str, refused: bool = False) -> None:
        if refused:
            raise TimeoutError("the bank does not answer")

    await charge.enqueue_many([{"account": "+34600111222", "refused": n == 0} for n in range(4)])
    await charge.enqueue("ann", refused=True)
    async with app.worker():
        await eventually(lambda: _failed(pay, 2))
        told = await eventually(lambda: _problems(nobody))

    assert (told["status"], told["message"]) == (
        "degraded",
        'queue "pay": 2 keys are halted by a dead letter, 3 jobs wait behind',
    )
    [ill] = told["problems"]
    assert (ill["code"], ill["serious"], ill["values"]) == ("halted", False, {"keys": 2, "jobs": 3})
    assert "600111222" not in str(told), "anybody may ask for the health"


async def _failed(queue: qbull.Queue, n: int) -> bool:
    return (await queue.stats()).failed == n


async def _problems(nobody: Person) -> Any:
    told = await nobody.get("/api/queues/health")
    return told if told["problems"] else None


async def test_a_stale_queue_is_unhealthy(app: qbull.App, email: qbull.Queue) -> None:
    send = qbull.task.Call[..., Any](email, email.tasks["send"])
    await send.enqueue(to="a")
    async with opened(app, qbull.Access(stale_after=1)) as web, app.worker():
        nobody = await web.person()
        assert (await nobody.ask("GET", "/api/queues/health")).status_code == 200
        await email.configure(rate=qbull.Rate(1, per=600))
        await send.enqueue_many([{"to": "b"}] * 5)

        async def unhealthy() -> Any:
            answer = await nobody.ask("GET", "/api/queues/health")
            return answer if answer.status_code == 503 else None

        answer = await eventually(unhealthy)
        assert answer.json()["status"] == "unhealthy" and "stale" in answer.json()["message"]
        await email.clean("completed")


async def test_a_server_that_is_away_is_said(away: tuple[qbull.App, Node]) -> None:
    app, node = away
    async with opened(app, qbull.Access(admin_token=ADMIN)) as web:
        nobody, admin = await web.person(), await web.person(ADMIN)
        assert (await nobody.get("/readyz"))["status"] == "ok"
        node.kill()

        ready = await nobody.ask("GET", "/readyz")
        health = await nobody.ask("GET", "/api/queues/health")
        assert (ready.status_code, ready.json()["status"]) == (503, "away")
        assert health.status_code == 503 and "cannot be reached" in health.json()["message"]
        assert (await nobody.get("/healthz"))["status"] == "ok"
        closed = await admin.ask("GET", "/api/queues/stats")
        assert closed.status_code == 503 and "retry-after" in closed.headers
        assert str(node.place) not in closed.text + health.text, "the address is nobody's business"
        token = await web.person("qb_0123456789_" + "x" * 43)
        assert (await token.ask("GET", "/api/queues/stats")).status_code == 503, (
            "no door opens because nobody can look"
        )


async def test_all_queues_are_paused_and_resumed(app: qbull.App, email: qbull.Queue, admin: Person) -> None:
    orders = app.queue("orders")
    for queue in (email, orders):
        await queue.stats()
        async with app.worker([queue.name]):
            pass

    paused = await admin.post("/api/pause")
    assert [(await queue.stats()).paused for queue in (email, orders)] == [True, True]
    resumed = await admin.post("/api/resume")
    assert [(await queue.stats()).paused for queue in (email, orders)] == [False, False]

    assert (paused["message"], resumed["message"]) == ("paused 2 queues", "resumed 2 queues")
    assert [change.by for change in await orders.changes()] == ["QBULL_ADMIN_TOKEN"] * 2


async def test_filters_take_times_as_people_write_them(
    app: qbull.App, email: qbull.Queue, admin: Person
) -> None:
    await admin.post("/api/queues/email/jobs", {"task": "send", "payload": {"to": "a"}})

    path = "/api/queues/email/jobs"
    for time in ("yesterday", "2h", "2020-01-01", "2020-01-01T00:00:00Z"):
        found = await admin.get(path, state="waiting", after=time)
        assert len(found["jobs"]) == 1
        assert (await admin.get(path, state="waiting", before=time))["jobs"] == []
    await admin.refused(400, "GET", f"{path}?state=waiting&after=soon")
    await admin.refused(400, "GET", f"{path}?state=waiting&after=2020-99-01")


async def test_slow_tasks_are_listed_for_the_queues_that_a_caller_may_see(
    app: qbull.App, email: qbull.Queue, admin: Person
) -> None:
    other = app.queue("reports")

    @other.task
    async def render() -> None:
        await asyncio.sleep(0.02)

    @email.task
    async def ping() -> None: ...

    await render.enqueue()
    await ping.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    told = await admin.get("/api/slow")
    one = await admin.get("/api/slow", queue="email")

    assert [(row["queue"], row["task"], row["runs"]) for row in told["tasks"]] == [
        ("reports", "render", 1),
        ("email", "ping", 1),
    ]
    assert [row["task"] for row in one["tasks"]] == ["ping"]
    assert told["running"] == []
    await admin.refused(404, "GET", "/api/slow?queue=nothing")
