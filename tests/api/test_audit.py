"""The audit log: everything that changes something is there, with its author, its reason and what changed."""

from __future__ import annotations

import asyncio
import getpass
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner
from web import ADMIN, VIEWER, Person, Web, make_admin, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from qbull.cli.main import COMMANDS
from qbull.cli.main import qbull as command_line
from qbull.job import Job
from qbull.schedules import Schedules
from qbull.store.store import Store
from qbull.store.verbs import audit_log
from qbull.store.verbs.audit_log import AuditLogEntry, AuditLogRecord

ENTRIES = [AuditLogEntry("ada", "admin", "token", "pause queue", f"q{n}") for n in range(6)]

READS = {
    qbull.Queue: {"jobs", "search", "failures", "stats", "live", "changes", "repartitioning"},
    Job: {"state", "info", "why", "logs", "steps", "published", "result"},
    Schedules: {"list", "get", "preview", "runs", "all_runs"},
}
"""The methods that change nothing. Every other coroutine method must be in `CHANGES`."""

CHANGES: dict[Any, dict[str, tuple[str, str, Callable[[Any], Awaitable[Any]]]]] = {
    qbull.Queue: {
        "pause": ("pause queue", "email", lambda queue: queue.pause()),
        "resume": ("resume queue", "email", lambda queue: queue.resume()),
        "configure": ("change settings", "email", lambda queue: queue.configure(concurrency=3)),
        "reset": ("reset settings", "email", lambda queue: queue.reset("concurrency")),
        "repartition": ("repartition", "email", lambda queue: queue.repartition(2)),
        "redrive": ("redrive", "email", lambda queue: queue.redrive(task="send")),
        "clean": ("clean", "email", lambda queue: queue.clean("completed")),
        "cancel": ("cancel jobs", "email", lambda queue: queue.cancel("delayed", reason="too late")),
        "purge": ("purge", "email", lambda queue: queue.purge("delayed")),
        "reschedule": ("reschedule jobs", "email", lambda queue: queue.reschedule("delayed", delay=60)),
    },
    Job: {
        "cancel": ("cancel job", "email/one", lambda job: job.cancel("not wanted")),
        "retry": ("retry job", "email/one", lambda job: _then(job.cancel(), job.retry)),
        "promote": ("promote job", "email/one", lambda job: job.promote()),
        "reschedule": ("reschedule job", "email/one", lambda job: job.reschedule(delay=60)),
        "update": ("update job", "email/one", lambda job: job.update({"to": "secret-address"})),
        "signal": ("signal job", "email/one", lambda job: job.signal("approval", "secret-address")),
        "fork": (
            "fork job",
            "email/one",
            lambda job: _then(_run_to_its_end(job), lambda: job.fork(results={1: "secret-address"})),
        ),
        "remove": ("remove job", "email/one", lambda job: job.remove()),
    },
    Schedules: {
        "upsert": ("put schedule", "daily", lambda these: these.upsert("daily", "email/send", every=60)),
        "run": ("run schedule", "nightly", lambda these: these.run("nightly")),
        "pause": ("pause schedule", "nightly", lambda these: these.pause("nightly")),
        "resume": ("resume schedule", "nightly", lambda these: these.resume("nightly")),
        "remove": ("remove schedule", "nightly", lambda these: these.remove("nightly")),
    },
}
"""Method → action and target in the log, and a call."""

COMMAND_READS = {
    *("worker", "serve", "dev", "demo", "init", "relay", "dev-process", "run-job"),
    *(
        "queues",
        "slow",
        "stats",
        "stub",
        "jobs",
        "job",
        "failures",
        "workers",
        "partitions",
        "keys",
        "key",
        "doctor",
        "settings",
        "stack",
        "limits list",
        "limits show",
    ),
    *(
        "check-celery",
        "stream",
        "schedules list",
        "schedules preview",
        "alerts list",
        "token list",
        "audit",
        "acl",
    ),
    *("job show", "job why", "job logs", "job history", "job steps", "migrate"),
}
"""Commands that run or show something. `migrate` changes PostgreSQL, which has no audit log."""


async def _then(first: Awaitable[Any], second: Callable[[], Awaitable[Any]]) -> Any:
    await first
    return await second()


async def _run_to_its_end(job: Job[Any]) -> None:
    await job.promote()
    async with job._queue.app.worker(["email"]):
        await job.result(timeout=20)


@pytest.fixture(name="email")
async def make_email(app: qbull.App) -> qbull.Queue:
    """A queue with a delayed durable job "one" and a schedule "nightly"."""
    email = app.queue("email")

    @email.task(durable=True)
    async def send(to: str = "") -> None:
        await qbull.current_job().patched("v2")

    await send.options(id="one", delay=3600).enqueue(to="b@example.com")
    await app.schedules.upsert("nightly", send, cron="0 1 * * *")
    return email


async def newest(store: Store) -> AuditLogRecord:
    return (await audit_log.read(store, 1))[0]


def methods_of(kind: type) -> set[str]:
    return {
        name
        for name, member in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.__name__)
def test_every_method_reads_or_is_in_the_table(kind: type) -> None:
    assert methods_of(kind) == READS[kind] | set(CHANGES[kind])


@pytest.mark.parametrize(
    ("kind", "method"), [(kind, method) for kind, methods in CHANGES.items() for method in methods]
)
async def test_every_change_from_python_is_written_down(
    app: qbull.App, email: qbull.Queue, store: Store, kind: type, method: str
) -> None:
    action, target, call = CHANGES[kind][method]
    subject = {qbull.Queue: email, Job: email.job("one"), Schedules: app.schedules}[kind]

    with qbull.acting_as("ada", reason="ticket 812"):
        await call(subject)

    entry = (await newest(store)).entry
    assert (entry.who, entry.how, entry.action, entry.target) == ("ada", "python", action, target)
    assert entry.status == 200 and entry.address
    assert entry.reason == "ticket 812"
    assert "secret-address" not in repr(entry)


async def test_an_entry_has_the_values_before_and_after(
    app: qbull.App, email: qbull.Queue, store: Store
) -> None:
    await email.configure(concurrency=3, by="ada")
    await email.configure(concurrency=4)
    settings = (await newest(store)).entry
    await app.schedules.upsert("nightly", "email/send", every=60)
    schedule = (await newest(store)).entry

    assert settings.detail["before"] == {"concurrency": 3} and settings.detail["after"] == {"concurrency": 4}
    assert settings.who.startswith(f"{getpass.getuser()}@")
    assert schedule.detail["before"] == {"task": "email/send", "cron": "0 1 * * *"}
    assert schedule.detail["after"] == {"task": "email/send", "every_ms": 60_000}


async def test_a_job_has_its_state_before_and_after_from_python_and_rest_alike(
    email: qbull.Queue, admin: Person, store: Store
) -> None:
    job = email.job("one")
    due = (await job.info()).due_at  # type: ignore[union-attr]
    await job.reschedule(delay=60)
    python = (await newest(store)).entry
    await admin.post("/api/queues/email/jobs/one/reschedule", {"delay": 0})
    rest = (await newest(store)).entry
    await admin.post("/api/queues/email/jobs/one/cancel", {"reason": "a wrong address"})
    cancelled = (await newest(store)).entry

    before = {"task": "send", "state": "delayed", "due": due.isoformat().replace("+00:00", "Z")}  # type: ignore[union-attr]
    assert python.detail == {"delay": 60, "before": before, "after": {"state": "delayed"}}
    assert rest.detail["delay"] == 0 and rest.detail["after"] == {"state": "waiting"}
    assert rest.detail["before"]["state"] == "delayed" and rest.detail["before"]["due"] != before["due"]
    assert cancelled.detail["after"] == {"state": "cancelled"}
    assert cancelled.reason == "a wrong address"


async def test_a_cancellation_without_a_reason_has_none(
    email: qbull.Queue, admin: Person, store: Store
) -> None:
    await admin.post("/api/queues/email/jobs/one/cancel", {})

    cancelled = (await newest(store)).entry
    assert (cancelled.action, cancelled.reason) == ("cancel job", "")


async def test_a_token_has_its_role_and_its_end_before_and_after(admin: Person, store: Store) -> None:
    made = await admin.post("/api/tokens", {"name": "ci", "role": "viewer", "expiresIn": 60})
    id = made["details"]["id"]
    await admin.post(f"/api/tokens/{id}/rotate", {"expiresIn": 3600})
    rotated = (await newest(store)).entry
    await admin.delete(f"/api/tokens/{id}")
    revoked = (await newest(store)).entry

    assert rotated.detail["before"]["expires"] < rotated.detail["after"]["expires"]
    assert revoked.detail["before"] == rotated.detail["after"]
    assert revoked.detail["before"]["name"] == "ci" and revoked.detail["after"] is None
    assert made["token"] not in repr([one.entry for one in await audit_log.read(store, 100)])


async def test_a_flow_that_is_cancelled_or_run_again_has_one_entry(
    app: qbull.App, email: qbull.Queue, store: Store
) -> None:
    nothing = app.queue("slow").task(_nothing)
    flow = await qbull.chain(nothing.step(), nothing.step(), nothing.step()).enqueue()

    await flow.cancel("not needed")
    entry, earlier = (one.entry for one in await audit_log.read(store, 2))
    again = await flow.rerun(flow.jobs[0])
    rerun = (await newest(store)).entry
    await flow.retry()
    retried, before = (one.entry for one in await audit_log.read(store, 2))

    assert (entry.action, entry.target, entry.reason) == ("cancel flow", flow.id, "not needed")
    assert entry.detail["queues"] == ["slow"] and earlier.action == "put schedule"
    assert (rerun.action, rerun.target) == ("rerun flow", flow.id)
    assert rerun.detail["after"]["job"] in [job.id for job in again.jobs]
    assert (retried.action, retried.target, before) == ("retry flow", flow.id, rerun)
    assert retried.detail["after"] == {"jobs": 3}
    assert methods_of(qbull.Flow) == {"result", "counts", "cancel", "retry", "rerun"}


async def _nothing() -> None: ...


async def test_a_pause_that_waits_in_vain_is_written_down(app: qbull.App, store: Store) -> None:
    slow, started, end = app.queue("slow"), asyncio.Event(), asyncio.Event()

    @slow.task
    async def wait() -> None:
        started.set()
        await end.wait()

    await wait.enqueue()
    async with app.worker():
        await started.wait()
        with pytest.raises(qbull.ResultTimeout):
            await slow.pause(wait=0.1)
        end.set()

    entry = (await newest(store)).entry
    assert entry.action == "pause queue" and entry.detail["error"] == "ResultTimeout"
    assert entry.detail["after"] == {"paused": True}


async def test_a_pause_of_all_queues_names_those_that_it_has_changed(
    app: qbull.App, email: qbull.Queue, admin: Person, store: Store
) -> None:
    sms = app.queue("sms")
    await sms.pause()
    await admin.post("/api/pause")

    assert (await newest(store)).entry.detail["changed"] == ["email"]


async def test_jobs_and_signals_of_programs_cost_no_entry(
    app: qbull.App, email: qbull.Queue, store: Store
) -> None:
    before = len(await audit_log.read(store, 100))

    await app.queue("plain").task(_nothing).enqueue()
    await email.job("one").signal("approval", 1)

    assert len(await audit_log.read(store, 100)) == before


async def test_a_viewer_cannot_read_hidden_values_in_the_filters_of_others(
    app: qbull.App, email: qbull.Queue, store: Store
) -> None:
    hiding = qbull.Access(admin_token=ADMIN, viewer_token=VIEWER, hide_payloads=True)
    wanted = {"errorContains": "s3cret", "payload": "to=b@example.com"}

    async with opened(app, hiding) as web:
        admin, viewer = await web.person(ADMIN), await web.person(VIEWER)
        await admin.post("/api/queues/email/redrive", wanted)
        await email.redrive(error_contains="s3cret", payload={"to": "b@example.com"})
        seen = [await viewer.get("/api/audit"), await viewer.get("/api/operations")]
        exported = (await viewer.ask("GET", "/api/audit/export")).text
        found = [len((await who.get("/api/audit", search="s3cret"))["entries"]) for who in (viewer, admin)]

    assert "s3cret" not in repr(seen) + exported and "b@example.com" not in repr(seen) + exported
    assert found == [0, 2]
    assert "b@example.com" not in repr([one.entry for one in await audit_log.read(store, 100)])


async def test_a_call_that_was_refused_is_no_change(email: qbull.Queue, store: Store) -> None:
    with pytest.raises(qbull.NotFound):
        await email.job("nothing").cancel()

    assert (await newest(store)).entry.action == "put schedule"


async def test_a_call_that_broke_off_is_written_down(email: qbull.Queue, store: Store) -> None:
    await email.cancel("delayed")

    async def interrupted(*_: Any, **__: Any) -> None:
        raise asyncio.CancelledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qbull.manage.search.run_bulk", interrupted)
        with pytest.raises(asyncio.CancelledError):
            await email.redrive()

    entry = (await newest(store)).entry
    assert (entry.action, entry.status, entry.detail) == ("redrive", 500, {"error": "CancelledError"})


async def test_a_change_through_the_api_has_one_entry_with_its_reason(
    email: qbull.Queue, admin: Person, store: Store
) -> None:
    await admin.ask(
        "PUT",
        "/api/queues/email/settings",
        {"concurrency": 7},
        headers={"x-qbull-reason": "mehr%20Durchsatz%20f%C3%BCr%20alle"},
    )

    found = [record.entry for record in await audit_log.read(store, 100)]
    changed = [entry for entry in found if entry.action == "change settings"]
    assert [(one.who, one.how, one.reason) for one in changed] == [
        ("QBULL_ADMIN_TOKEN", "token", "mehr Durchsatz für alle")
    ]
    assert changed[0].detail["after"] == {"concurrency": 7}


def commands() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    context = click.Context(command_line)
    for name in COMMANDS:
        command = command_line.get_command(context, name)
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": one for inner, one in command.commands.items()}
        elif command is not None:
            found[name] = command
    return found


def test_every_command_reads_or_takes_a_reason() -> None:
    without = {
        name
        for name, command in commands().items()
        if not any(parameter.name == "reason" for parameter in command.params)
    }

    assert without <= COMMAND_READS, "add @with_reason, and an entry to the audit log"
    assert not COMMAND_READS & (set(commands()) - without)


def test_every_command_that_changes_something_is_written_down(server_url: str, store: Store) -> None:
    done = {
        "enqueue email send {}": "enqueue",
        "pause email --by ada": "pause queue",
        "resume email": "resume queue",
        "configure email --concurrency 3": "change settings",
        "reset email": "reset settings",
        "repartition email 2 --no-wait": "repartition",
        "enqueue email send {} --id one --delay 3600": "enqueue",
        'update email one --payload {"to":"x"}': "update job",
        "reschedule email one --delay 2h": "reschedule job",
        "promote email one": "promote job",
        "cancel email one": "cancel job",
        "retry email one": "retry job",
        "remove email one": "remove job",
        "reschedule email --all --delay 2h": "reschedule jobs",
        "cancel email --all": "cancel jobs",
        "purge email --yes": "purge",
        "redrive email": "redrive",
        "clean email --state completed --older-than 0s": "clean",
        "schedules put nightly email/send --every 60": "put schedule",
        "schedules pause nightly": "pause schedule",
        "schedules resume nightly": "resume schedule",
        "run nightly": "run schedule",
        "schedules remove nightly": "remove schedule",
        "token create --role viewer --name ci": "create token",
    }
    asyncio.run(_declare(server_url))
    shell = CliRunner(env={"QBULL_URL": server_url, "QBULL_PREFIX": "test"})

    for line, action in done.items():
        words = [*line.split(" "), "--reason", "a test"]
        ran = shell.invoke(command_line, words, standalone_mode=False)
        assert ran.exception is None, (line, ran.output, ran.exception)

        [entry] = json.loads(shell.invoke(command_line, ["audit", "--json", "--limit", "1"]).output)
        assert (entry["action"], entry["how"], entry["reason"]) == (action, "cli", "a test"), line
        if action == "create token":
            token = entry["detail"]["token"]
    for words, action in (("rotate", "rotate token"), ("revoke", "revoke token")):
        shell.invoke(command_line, ["token", words, token])
        [entry] = json.loads(shell.invoke(command_line, ["audit", "--json", "--limit", "1"]).output)
        assert (entry["action"], entry["target"]) == (action, token)


async def _declare(url: str) -> None:
    async with qbull.App(url, prefix="test") as app:
        email = app.queue("email")

        @email.task
        async def send(to: str = "") -> None:
            pass

        await send.enqueue()


async def test_the_log_is_searched_and_exported_through_the_api(
    store: Store, viewer: Person, admin: Person
) -> None:
    await audit_log.write(store, ENTRIES)
    await audit_log.write(store, [AuditLogEntry("bob", "redis", "python", "redrive", "mail")], "programs")

    async def targets(**query: str) -> list[str]:
        return [entry["target"] for entry in (await viewer.get("/api/audit", **query))["entries"]]

    assert await targets(who="bob") == ["mail"]
    assert await targets(target="q3") == ["q3"]
    assert await targets(search="PAUSE", limit="2") == ["q5", "q4"]
    assert await targets(action="redrive", since="1h") == ["mail"]
    await viewer.refused(400, "GET", "/api/audit?since=never")
    lines = (await viewer.ask("GET", "/api/audit/export?who=ada")).text.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [6, 5, 4, 3, 2, 1]
    assert (await admin.get("/api/audit/verify"))["complete"] is True


def test_the_command_line_notices_a_removed_line(server_url: str, store: Store) -> None:
    shell = CliRunner(env={"QBULL_URL": server_url, "QBULL_PREFIX": "test"})

    def verify(*words: str) -> tuple[int, str]:
        ran = shell.invoke(command_line, ["audit", "--verify", *words])
        return ran.exit_code, ran.output

    async def remove_first(store: Store) -> None:
        [[first, _]] = await store.server.call("XRANGE", store.names.trail, "-", "+", "COUNT", 1)
        await store.server.call("XDEL", store.names.trail, first)

    asyncio.run(_on_a_store(server_url, lambda store: audit_log.write(store, ENTRIES)))
    code, said = verify()
    last = said.split("the last is ")[1].split()[0]
    asyncio.run(_on_a_store(server_url, remove_first))

    assert code == 0 and "trail: 6 entries" in said and "complete" in said
    assert verify()[0] == 1 and "entry 1 is missing" in verify()[1]
    assert "is not in the log" not in verify("--expect", last)[1]
    assert "the entry 1:beef is not in the log" in verify("--expect", "1:beef")[1]


async def _on_a_store(url: str, act: Callable[[Store], Awaitable[Any]]) -> Any:
    async with qbull.App(url, prefix="test") as app:
        return await act(app._client().store)


async def test_a_log_that_cannot_be_written_does_not_stop_the_change(
    email: qbull.Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: Any) -> None:
        raise qbull.ServerError("NOPERM")

    monkeypatch.setattr(audit_log, "write", refuse)
    await email.pause(by="ada")

    assert (await email.stats()).paused
    assert "audit entry not written: NOPERM" in caplog.text and '"who":"ada"' in caplog.text
