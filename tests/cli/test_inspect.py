"""queues, stats, jobs, job, workers: what can be seen from a shell that has only the server's address."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest
from sample_app import SampleApp, send
from shell import QBULL, Shell, make_sample, open_shell, seen  # noqa: F401 - two are fixtures

import qbull
from conftest import eventually
from qbull.store.store import Store
from qbull.store.verbs.workers import RegisteredWorker

JOB = [field.encode_name for field in msgspec.structs.fields(qbull.JobInfo)]


async def test_queues_are_listed_with_their_counts(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")
    await sample.ship.enqueue(customer="c")

    listed = shell.json("queues")
    shown = shell.ok("queues")

    assert [queue["name"] for queue in listed] == ["email", "orders"]
    assert [queue["waiting"] for queue in listed] == [1, 1]
    assert re.search(r"^email +1 +0 +0 +0 +0 +0 ", shown, re.MULTILINE)


async def test_the_stats_of_a_queue_are_its_counts(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")
    await sample.send.options(delay=60).enqueue(to="b")

    stats = shell.json("stats", "email")
    assert stats.pop("oldestWaitingAt").endswith("Z")
    assert stats == {
        "name": "email",
        "waiting": 1,
        "active": 0,
        "completed": 0,
        "failed": 0,
        "delayed": 1,
        "paused": 0,
        "total": 2,
        "cancelled": 0,
        "isPaused": False,
    }
    assert re.search(r"^tasks +bounce, send, talk", shell.ok("stats", "email"), re.MULTILINE)


async def test_a_job_in_json_has_the_promised_names(shell: Shell, sample: SampleApp, app: qbull.App) -> None:
    sent = await sample.send.enqueue(to="a")
    bounced = await sample.bounce.enqueue(to="b")
    async with app.worker(["email"]) as worker:
        await worker.drain()

    completed, failed = shell.json("job", "email", sent.id), shell.json("job", "email", bounced.id)

    assert list(completed) == list(failed) == JOB
    assert completed["state"] == "completed"
    assert completed["payload"] == {"to": "a"}
    assert completed["result"] == "1 sent to a"
    assert completed["failedReason"] is None
    for name in ("createdAt", "startedAt", "finishedAt"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", completed[name])
    assert failed["state"] == "failed"
    assert failed["error"] == failed["failedReason"] == "ValueError: no mailbox for b\x1b[2J"
    assert failed["attempt"] == failed["maxAttempts"] == 2
    assert "in bounce" in failed["stacktrace"]


async def test_the_page_of_a_job_tells_its_story_and_cannot_steer_the_terminal(
    shell: Shell, sample: SampleApp, app: qbull.App
) -> None:
    job = await sample.bounce.enqueue(to="b")
    async with app.worker(["email"]) as worker:
        await worker.drain()

    page = shell.ok("job", "email", job.id)

    assert '"to": "b"' in page
    assert "in bounce" in page
    assert re.search(r"earlier attempts\n  1\. .*ValueError: no mailbox for b", page)
    assert "\x1b" not in page


async def test_the_published_values_of_a_job_are_shown(shell: Shell, app: qbull.App) -> None:
    @app.queue("parcels").task(durable=True)
    async def pack() -> None:
        await qbull.current_job().publish("status", {"state": "packing"})

    job = await pack.enqueue()
    async with app.worker(["parcels"]):
        await job.result(timeout=20)

    assert shell.json("job", "parcels", job.id, "--published") == {"status": {"state": "packing"}}
    assert shell.ok("job", "parcels", job.id, "--published") == 'status: {"state":"packing"}\n'


async def test_what_a_job_said_of_itself_is_shown(shell: Shell, sample: SampleApp, app: qbull.App) -> None:
    job = await sample.talk.enqueue()
    async with app.worker(["email"]) as worker:
        await worker.drain()

    [line] = shell.json("job", "email", job.id, "--logs")
    shown = shell.ok("job", "email", job.id, "--logs")

    assert (line["attempt"], line["text"]) == (1, "half \x1b[2J of it")
    assert shown.startswith(f"{line['at']}  1  half ")
    assert "\x1b" not in shown
    assert shell.json("job", "email", job.id)["progress"] == 50
    assert re.search(r"progress +50 %", shell.ok("job", "email", job.id))


async def test_jobs_of_a_state_are_listed_newest_first(
    shell: Shell, sample: SampleApp, app: qbull.App
) -> None:
    jobs = []
    async with app.worker(["email"]) as worker:
        for n in range(3):
            jobs.append(await sample.bounce.enqueue(to=str(n)))
            await worker.drain()

    listed = shell.json("jobs", "email", "--state", "failed")
    second = shell.json("jobs", "email", "--state", "failed", "--start", "1", "--end", "2")
    shown = shell.ok("jobs", "email", "--state", "failed")

    assert [job["id"] for job in listed] == [job.id for job in reversed(jobs)]
    assert [job["id"] for job in second] == [jobs[1].id]
    assert "\x1b" not in shown and "no mailbox for 2" in shown


async def test_a_list_without_jobs_says_where_they_are(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    done = shell.run("jobs", "email", "--state", "failed")

    assert (done.code, done.out) == (0, "")
    assert done.err == 'queue "email": no failed jobs; it has: 1 waiting\n'
    assert shell.json("jobs", "email", "--state", "failed") == []


async def test_live_workers_are_listed(shell: Shell, sample: SampleApp, app: qbull.App) -> None:
    assert shell.json("workers") == []

    async with app.worker(["email"]) as worker:
        [listed] = await asyncio.to_thread(shell.json, "workers")
        shown = await asyncio.to_thread(shell.ok, "workers")

    assert listed["id"] == worker.id
    assert listed["queues"]["email"]["concurrency"] == 5
    assert worker.id in shown and "email (5)" in shown
    assert shell.json("workers") == []


async def test_workers_shows_a_blocked_event_loop_and_its_task(
    shell: Shell, sample: SampleApp, store: Store
) -> None:
    await store.register_worker("w1", RegisteredWorker("host", 1, "pod"), 30)
    await store.mark_blocked("w1", 1_700_000_000_000, ["resize"])

    shown, [listed] = shell.ok("workers"), shell.json("workers")
    await store.forget_worker("w1", certain=True)

    assert "worker w1: resize has blocked its event loop since 2023-11-14 22:13:20 UTC" in shown
    assert listed["blocked"] == {"since": "2023-11-14T22:13:20.000Z", "tasks": ["resize"]}


async def test_the_health_of_one_machine_is_that_a_worker_of_it_lives(
    shell: Shell, app: qbull.App, store: Store
) -> None:
    app.queue("email").task(name="send")(send)
    await store.register_worker("other-1", RegisteredWorker("other", 1, "other", {}), 60)

    assert shell.refused("workers", "--here").startswith(f'no worker of "{socket.gethostname()}" is alive')
    async with app.worker() as worker:
        shown = await asyncio.to_thread(shell.ok, "workers", "--here")
    assert worker.id in shown and "other" not in shown


@pytest.mark.parametrize("command", [("queues",), ("stats", "email"), ("queues", "--json")])
async def test_a_watch_goes_on_until_ctrl_c(
    shell: Shell, sample: SampleApp, command: tuple[str, ...]
) -> None:
    await sample.send.enqueue(to="a")
    watching = shell.start(*command, "--watch")
    seen(lambda: shell.out.count("email") >= 2)

    watching.send_signal(signal.SIGINT)

    assert watching.wait(10) == 130
    assert shell.err.strip() == ""


async def test_a_closed_pipe_ends_quietly(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    line = " ".join(QBULL)
    done = subprocess.run(
        f"{line} jobs email --json | true; {line} queues --watch | head -1",
        shell=True,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert done.stderr == ""
    assert done.stdout.startswith("queue ")


def test_a_look_at_nothing_starts_no_server(shell: Shell) -> None:
    assert "QBULL_URL is empty; set it to the server's address" in shell.refused("queues", QBULL_URL="")
    assert "does not exist" in shell.refused("queues", "--url", "embedded://nowhere")
    assert list(shell.directory.iterdir()) == []


@pytest.mark.usefixtures("app")
def test_an_empty_server_has_no_queues(shell: Shell) -> None:
    assert shell.json("queues") == []
    assert shell.run("queues").err.startswith("no queues yet")


async def test_the_server_of_an_app_is_used(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    assert [queue["name"] for queue in shell.json("queues", "-A", "sample_app:app")] == ["email"]
    assert shell.json("stats", "slow", "-A", "sample_app")["total"] == 0


@pytest.mark.parametrize(
    "command", ["demo", "queues", "stats", "jobs", "job", "workers", "enqueue", "doctor"]
)
def test_every_command_explains_itself_with_an_example(shell: Shell, command: str) -> None:
    explained = shell.ok(command, "--help")

    assert f"Example:\n    qbull {command}" in explained


def test_the_command_alone_shows_what_there_is(shell: Shell) -> None:
    shown = shell.ok()

    assert shown == shell.ok("--help")
    assert "..." not in shown.partition("Develop:")[2]
    assert "dev-process" not in shown


async def test_a_query_finds_jobs_of_all_queues(shell: Shell, sample: SampleApp, app: qbull.App) -> None:
    sent = await sample.send.enqueue(to="ada")
    bounced = await sample.bounce.enqueue(to="ada")
    shipped = await sample.ship.enqueue(customer="ada")
    async with app.worker() as worker:
        await worker.drain()

    def ids(*words: str) -> set[str]:
        return {job["id"] for job in shell.json("jobs", *words)}

    assert ids("queue:email", "args.to:ada", "since:1h") == {sent.id, bounced.id}
    assert ids("state:failed -queue:orders args.to:a*") == {bounced.id}
    assert ids("ada") == {sent.id, bounced.id, shipped.id}
    assert ids("email", "--state", "failed", "--query", "args.to:ada") == {bounced.id}
    assert "no matching jobs; read all 3" in shell.run("jobs", "task:nothing").err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("colour:red",), '"colour" is no field'),
        (("task:send", "--state", "failed"), "--state needs the name of one queue"),
        (("task:send", "--start", "5"), "continue a search with --cursor"),
        (("email", "--query", 'a"'), "a quotation mark is not closed"),
    ],
)
async def test_a_wrong_query_is_refused(
    shell: Shell, sample: SampleApp, words: tuple[str, ...], message: str
) -> None:
    ended = shell.run("jobs", *words)

    assert ended.code != 0
    assert message in ended.err


async def test_a_search_continues_with_its_cursor(shell: Shell, sample: SampleApp) -> None:
    for n in range(5):
        await sample.send.enqueue(to=f"a{n}")

    first = shell.run("jobs", "state:waiting", "--end", "3", "--json")
    cursor = re.search(r"read \d+ of 5 jobs; more: --cursor (\S+)", first.err)
    assert cursor is not None
    rest = shell.json("jobs", "state:waiting", "--cursor", cursor[1])

    ids = [job["id"] for job in [*json.loads(first.out), *rest]]
    assert len(ids) == len(set(ids)) == 5


async def test_the_slowest_tasks_come_first_and_so_do_the_longest_runs(
    app: qbull.App, shell: Shell, sample: SampleApp, tmp_path: Path
) -> None:
    marks = [tmp_path / name for name in ("first", "second")]
    await sample.send.enqueue_many([{"to": str(n)} for n in range(20)])
    await app.queues["slow"].configure(concurrency=2)
    async with app.worker(["email", "slow"]) as worker:
        await worker.drain()
        jobs = []
        for mark in marks:
            jobs.append(await sample.wait_for.enqueue(mark=str(mark)))
            await eventually(lambda mark=mark: exists(mark.with_suffix(".begun")), within=30)
        during = await asyncio.to_thread(shell.json, "slow")
        table = await asyncio.to_thread(shell.ok, "slow", "slow")
        for mark in marks:
            mark.with_suffix(".go").touch()
        for job in jobs:
            await job.result(timeout=30)
        await worker.drain()

        async def counted() -> bool:
            told = await asyncio.to_thread(shell.json, "slow")
            return {(one["task"], one["runs"]) for one in told["tasks"]} == {("wait_for", 2), ("send", 20)}

        await eventually(counted, within=60)
    after = shell.json("slow")

    assert [run["id"] for run in during["running"]] == [job.id for job in jobs]
    first, second = (run["runningMs"] for run in during["running"])
    assert 600_000 > first >= second >= 0
    assert "running for" in table and jobs[0].id in table
    assert [(one["queue"], one["task"]) for one in after["tasks"]] == [
        ("slow", "wait_for"),
        ("email", "send"),
    ]
    assert all(0 < one["p50Ms"] <= one["p95Ms"] and one["meanMs"] > 0 for one in after["tasks"])
    assert after["running"] == []
    assert len(shell.json("slow", "email")["tasks"]) == len(shell.json("slow", "--limit", "1")["tasks"]) == 1


async def exists(path: Path) -> bool:
    return path.exists()
