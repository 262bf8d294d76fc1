"""The alert service goes on whatever happens while it looks for problems."""

from __future__ import annotations

import pytest
from inbox import Inbox

import qbull
from conftest import eventually
from qbull.alerts import alerting
from qbull.alerts.detect import ProblemWatcher
from qbull.core.record import body_of
from qbull.store.read.pages import page
from qbull.store.store import Store
from qbull.store.verbs.alerts import ALERT_QUEUE


async def test_an_unexpected_error_is_logged_once_and_alerting_goes_on(
    server_url: str, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole service used to start again, with another worker for its messages."""
    look, looks = ProblemWatcher.look, 0

    async def fail_twice(self: ProblemWatcher) -> bool:
        nonlocal looks
        looks += 1
        if looks <= 2:
            raise KeyError("a reading that nobody expected")
        return await look(self)

    monkeypatch.setattr(ProblemWatcher, "look", fail_twice)
    monkeypatch.setattr(alerting, "ALERT_POLL_SECONDS", 0.05)
    async with Inbox() as slack:
        alerts = qbull.Alerts(slack=f"{slack.url}/services/T0/B0/x", allow=("127.0.0.1",))
        app = qbull.App(server_url, prefix="test", alerts=alerts)

        @app.queue("email", alert=True).task
        async def verify() -> None:
            raise qbull.Fail("no such user")

        async with app, app.worker():
            [before] = await eventually(lambda: _alert_workers(store))
            await verify.enqueue()
            await eventually(lambda: _has_posts(slack))
            assert await _alert_workers(store) == [before]

    logged = [record for record in caplog.records if record.name == "qbull.alerts"]
    assert [record.getMessage() for record in logged] == [
        "unexpected error while looking for problems; alerting goes on"
    ]


@pytest.mark.parametrize(("name", "value"), [("QBULL_REDACT", "password"), ("QBULL_HIDE_PAYLOADS", "yes")])
async def test_no_alert_has_a_hidden_value(
    name: str, value: str, server_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be in a chat, and in the arguments of the job that sends the message."""
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(alerting, "ALERT_POLL_SECONDS", 0.05)
    async with Inbox() as slack:
        alerts = qbull.Alerts(slack=f"{slack.url}/services/T0/B0/x", allow=("127.0.0.1",))
        app = qbull.App(server_url, prefix="test", alerts=alerts)

        @app.queue("email", alert=qbull.Alert(repeated=1), retry=qbull.Retry(attempts=1)).task
        async def verify(password: str) -> None:
            raise ValueError(f"{password} is refused")

        async with app, app.worker():
            await verify.enqueue("s3cret-Pass")
            await eventually(lambda: _is_said(slack, "attempts failed within five minutes"))
            stored = str(await eventually(lambda: _sent_messages(store)))

    assert "ValueError: [redacted]" in str(slack.posts) and "ValueError: [redacted]" in stored
    assert "s3cret" not in str(slack.posts) + stored


async def _alert_workers(store: Store) -> list[str]:
    return [id for id, worker in (await store.workers()).items() if ALERT_QUEUE.name in worker.queues]


async def _is_said(inbox: Inbox, text: str) -> bool:
    return text in str(inbox.posts)


async def _sent_messages(store: Store) -> list[bytes]:
    jobs = await page([store.partition(ALERT_QUEUE, 0)], "completed", 0, 100)
    return [body_of(job.record).payload for job in jobs]


async def _has_posts(inbox: Inbox) -> bool:
    return bool(inbox.posts)
