"""`qbull alerts`, and what `qbull doctor` says of them."""

from __future__ import annotations

import asyncio
import json

from inbox import Inbox, Post
from shell import Shell, open_shell  # noqa: F401

import qbull
from conftest import eventually
from qbull.store.store import Store
from qbull.store.verbs import alerts as board

MODULE = """
import os, qbull
app = qbull.App(prefix="test")
email = app.queue("email", alert=True)

@email.task(retry=qbull.Retry(attempts=1))
async def verify(n: int) -> None:
    if n < 0:
        os.kill(os.getpid(), 9)
    raise ValueError("no")
"""


async def test_a_test_message_is_sent_and_what_came_of_it_is_said(shell: Shell, store: Store) -> None:
    async with Inbox() as inbox:
        place = {"SLACK_WEBHOOK_URL": f"{inbox.url}/x"}
        sent = await asyncio.to_thread(shell.ok, "alerts", "test", **place, QBULL_ALERT_ALLOW="127.0.0.1")
        refused = await asyncio.to_thread(shell.run, "alerts", "test", **place)
    nowhere = await asyncio.to_thread(shell.refused, "alerts", "test")

    assert sent == "slack (127.0.0.1): sent\n"
    assert len(inbox.posts) == 1 and "this is a test" in inbox.posts[0].body.decode()
    assert refused.code == 1 and "internal address" in refused.out
    assert nowhere == "no alert destination is configured; set QBULL_SLACK_WEBHOOK_URL or QBULL_ALERT_URLS"


async def test_where_alerts_go_and_what_is_wrong_is_shown(app: qbull.App, shell: Shell, store: Store) -> None:
    app.queue("email", alert=True)
    async with app.worker():
        pass

    nowhere = await asyncio.to_thread(shell.ok, "doctor")
    shell.environment["SLACK_WEBHOOK_URL"] = "https://hooks.slack.com/services/secret"
    listed = await asyncio.to_thread(shell.ok, "alerts")
    as_json = await asyncio.to_thread(shell.json, "alerts")
    doctor = await asyncio.to_thread(shell.ok, "doctor")

    assert listed == "alerts go to slack (hooks.slack.com)\nno open problems\n"
    assert as_json == {"to": [{"kind": "slack", "host": "hooks.slack.com"}], "problems": []}
    assert 'alerts: those of queue "email" go to slack (hooks.slack.com)' in doctor
    assert 'alerts: those of queue "email" have no destination; set QBULL_SLACK_WEBHOOK_URL' in nowhere


async def test_worker_processes_say_failures_and_lost_workers(shell: Shell, store: Store) -> None:
    (shell.directory / "mail.py").write_text(MODULE)
    async with Inbox() as inbox:
        place = {"QBULL_ALERT_URLS": f"{inbox.url}/hook", "QBULL_ALERT_ALLOW": "127.0.0.1"}
        worker = shell.start("worker", "mail:app", **place)
        await eventually(lambda: _ready(store))
        for n in (1, -1):
            job = json.dumps({"n": n})
            await asyncio.to_thread(shell.ok, "enqueue", "email", "verify", job, "-A", "mail:app")
        kinds = await eventually(lambda: _kinds(inbox, {"failed", "lost"}), within=40)
        shown = await asyncio.to_thread(shell.ok, "alerts")
        worker.terminate()
        code = await asyncio.to_thread(worker.wait)

    assert kinds == {"failed", "lost"}
    assert 'queue "email": 1 job failed permanently' in shown or "2 jobs failed permanently" in shown
    assert code == 0


async def test_where_no_worker_runs_the_server_of_the_api_says_so(
    app: qbull.App, shell: Shell, store: Store
) -> None:
    @app.queue("email", alert=qbull.Alert(stale_after=1)).task
    async def verify() -> None: ...

    await verify.enqueue()
    async with Inbox() as inbox:
        place = {"SLACK_WEBHOOK_URL": f"{inbox.url}/x", "QBULL_ALERT_ALLOW": "127.0.0.1"}
        serving = shell.start("serve", "--port", "0", **place, QUEUES_UI_PASS="a password of some length")
        (post, *_) = await eventually(lambda: _posts(inbox), within=40)
        serving.terminate()
        await asyncio.to_thread(serving.wait)

    assert post.json["text"].startswith('queue "email": its oldest job has waited for')


async def _posts(inbox: Inbox) -> list[Post]:
    return inbox.posts


async def _ready(store: Store) -> bool:
    serving = [name for member in (await store.workers()).values() for name in member.queues]
    return {"email", "qbull.alerts"} <= set(serving) and bool((await board.read_known_problems(store)).totals)


async def _kinds(inbox: Inbox, wanted: set[str]) -> set[str] | None:
    found = {problem["kind"] for post in inbox.posts for problem in post.json["problems"]}
    return wanted if wanted <= found else None
