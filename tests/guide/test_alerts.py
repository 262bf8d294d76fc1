"""Alerts: a message to people when something is wrong, and one when it is right again."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
from collections.abc import AsyncIterator

import pytest
from inbox import Inbox, Post

import qbull
from conftest import eventually
from qbull.store.store import Store

SECRET = "a secret of enough length"


@pytest.fixture
async def slack() -> AsyncIterator[Inbox]:
    async with Inbox() as inbox:
        yield inbox


def to(inbox: Inbox, **options: object) -> qbull.Alerts:
    return qbull.Alerts(slack=f"{inbox.url}/services/T0/B0/x", allow=("127.0.0.1",), **options)  # type: ignore[arg-type]


async def first(inbox: Inbox) -> Post:
    return (await eventually(lambda: _posts(inbox)))[0]


async def test_a_job_that_fails_for_good_is_said(server_url: str, store: Store, slack: Inbox) -> None:
    app = qbull.App(server_url, prefix="test", alerts=to(slack, link="https://jobs.example.com"))
    email = app.queue("email", alert=True)

    @email.task
    async def verify(user_id: str) -> None:
        raise qbull.Fail(f"no such <user> {user_id}")

    async with app, app.worker():
        job = await verify.enqueue(user_id="u1")
        said = (await first(slack)).json

    text = str(said["blocks"])
    assert said["text"] == 'queue "email": 1 job failed permanently [test]'
    assert said["blocks"][0]["type"] == "header"
    assert "*Queue*\\nemail" in text and "*Task*\\nverify" in text and f"*Job*\\n{job.id}" in text
    assert "no such &lt;user&gt; u1" in text
    assert f"<https://jobs.example.com/ui/job?queue=email&amp;id={job.id}|Open the job>" in text


async def test_ten_thousand_failures_are_a_handful_of_messages(
    server_url: str, store: Store, slack: Inbox
) -> None:
    app = qbull.App(server_url, prefix="test", alerts=to(slack))
    email = app.queue("email", alert=True, concurrency=50)

    @email.task(retry=qbull.Retry(attempts=1))
    async def charge(n: int) -> None:
        raise ValueError(f"card {n} was declined")

    async with app, app.worker() as worker, app.worker() as other:
        await charge.enqueue(n=-1)
        await first(slack)  # now everybody knows: the others must not all be said
        for start in range(0, 9_999, 1_000):
            await charge.enqueue_many([{"n": n} for n in range(start, min(start + 1_000, 9_999))])
        await asyncio.gather(worker.drain(), other.drain())
        await email.clean("failed", older_than=0)  # somebody has dealt with all of them
        last = await eventually(
            lambda: _containing(slack, "all dealt with; 10,000 jobs had failed permanently")
        )

    assert last is not None
    print(f"10,000 failures, {len(slack.posts)} messages")
    assert len(slack.posts) <= 5


async def test_a_task_that_fails_repeatedly_is_said_before_its_jobs_have_failed_for_good(
    server_url: str, store: Store, slack: Inbox
) -> None:
    app = qbull.App(server_url, prefix="test", alerts=to(slack))
    email = app.queue("email", alert=qbull.Alert(repeated=3))

    @email.task(retry=qbull.Retry(delays=(300, 300)))
    async def flaky(n: int) -> None:
        raise ConnectionError("smtp.example.com is away")

    async with app, app.worker():
        await flaky.enqueue_many([{"n": n} for n in range(3)])
        said = (await first(slack)).json
        failed = (await email.stats()).failed

    assert said["text"].startswith('task "flaky" of queue "email": 3 attempts failed within five minutes')
    assert failed == 0


async def test_a_queue_that_nobody_works_off_is_said_and_so_is_its_recovery(
    server_url: str, store: Store, slack: Inbox
) -> None:
    app = qbull.App(server_url, prefix="test", alerts=to(slack))
    email = app.queue("email", alert=qbull.Alert(stale_after=1), concurrency=1)
    done = asyncio.Event()

    @email.task
    async def slow() -> None:
        await done.wait()

    async with app, app.worker():
        await slow.enqueue_many([{} for _ in range(20)])
        assert 'queue "email": its oldest job has waited for' in (await first(slack)).json["text"]
        done.set()
        await eventually(lambda: _containing(slack, "resolved: queue", "its jobs start again"))


async def test_a_webhook_gets_json_that_is_signed(server_url: str, store: Store, slack: Inbox) -> None:
    alerts = qbull.Alerts(urls=[f"{slack.url}/hook?a=1"], secret=SECRET, allow=["127.0.0.0/8"])
    app = qbull.App(server_url, prefix="test", alerts=alerts)

    @app.queue("email", alert=True).task
    async def verify() -> None:
        raise qbull.Fail("no")

    async with app, app.worker():
        job = await verify.enqueue()
        post = await first(slack)

    signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    wanted = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert post.path == "/hook?a=1"
    assert post.headers["webhook-signature"] == f"v1,{wanted}"
    assert post.json["app"] == "test" and post.json["more"] == 0
    (problem,) = post.json["problems"]
    assert problem.pop("since").endswith("Z")
    assert problem == {
        "status": "firing",
        "kind": "failed",
        "text": "1 job failed permanently",
        "count": 1,
        "queue": "email",
        "task": "verify",
        "job": job.id,
        "reason": "no",
    }


async def test_an_alert_is_tried_three_times_and_raises_none_itself(
    server_url: str, store: Store, slack: Inbox
) -> None:
    slack.answers = ["500 Oops"] * 3
    app = qbull.App(server_url, prefix="test", alerts=to(slack, every=3600))

    @app.queue("email", alert=True).task
    async def verify() -> None:
        raise qbull.Fail("no")

    async with app, app.worker():
        await verify.enqueue()
        own = app.queue("qbull.alerts", partitions=1)
        (job,) = await eventually(lambda: own.jobs("failed"), within=30)

    assert job.error == "NotSent: 127.0.0.1 answered 500"
    assert [round(attempt.duration_ms) >= 0 for attempt in job.history] == [True, True]
    assert len(slack.posts) == 3
    assert slack.url not in str(job.payload)  # where it goes to is a secret


async def test_without_a_place_to_send_them_nobody_looks(app: qbull.App, store: Store) -> None:
    @app.queue("email", alert=True).task
    async def verify() -> None:
        raise qbull.Fail("no")

    async with app.worker() as worker:
        await verify.enqueue()
        await worker.drain()

    assert await store.queues() == ["email"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"slack": "hooks.slack.com/x"}, "slack: give an address such as https://HOST/PATH"),
        ({"urls": ["https://a:b@example.com"]}, "urls, the 1st: leave user and password out"),
        ({"urls": "https://example.com"}, "urls: give a list"),
        ({"allow": ["http://x"]}, "allow='http://x'"),
        ({"secret": "short"}, "16 characters or more"),
        ({"every": 0}, "give seconds from 1"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(qbull.ConfigError, match=re.escape(said)):
        qbull.Alerts(**wrong)  # type: ignore[arg-type]


def test_a_wrong_value_of_the_environment_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_WEBHOOK_URL", "hooks.slack.com/services/secret")

    with pytest.raises(qbull.ConfigError, match=r"^SLACK_WEBHOOK_URL: give an address") as refused:
        qbull.App("redis://localhost")

    assert "secret" not in str(refused.value)


async def _posts(inbox: Inbox) -> list[Post]:
    return inbox.posts


async def _containing(inbox: Inbox, *texts: str) -> Post | None:
    said = (post for post in inbox.posts if all(text in post.body.decode() for text in texts))
    return next(said, None)
