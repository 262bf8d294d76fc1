"""Alerts: a message to people when something is wrong, and one when it is right again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import qbull
from conftest import eventually
from inbox import Inbox, Post
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


async def _posts(inbox: Inbox) -> list[Post]:
    return inbox.posts


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
    assert said["text"] == 'queue "email": 1 job failed for good [test]'
    assert said["blocks"][0]["type"] == "header"
    assert "*Queue*\\nemail" in text and "*Task*\\nverify" in text and f"*Job*\\n{job.id}" in text
    assert "no such &lt;user&gt; u1" in text
    assert f"<https://jobs.example.com/ui/queues/email/jobs/{job.id}|Open the job>" in text


async def test_ten_thousand_failures_are_a_handful_of_messages(
    server_url: str, store: Store, slack: Inbox
) -> None:
    app = qbull.App(server_url, prefix="test", alerts=to(slack))
    tasks = []
    for n in range(4):

        @app.queue(f"q{n}", alert=True, concurrency=50).task(name="charge", retry=qbull.Retry(attempts=1))
        async def charge(n: int) -> None:
            raise ValueError(f"card {n} was declined")

        tasks.append(charge)

    async with app, app.worker() as worker, app.worker() as other:
        await first_failure(tasks[0], slack)
        for task in tasks:
            await task.enqueue_many([{"n": n} for n in range(2_500)])
        await asyncio.gather(worker.drain(), other.drain())
        await eventually(lambda: _told(store, 4))

    counted = [(await app.queue_stats(task)) for task in ()]
    assert counted == []
    assert 2 <= len(slack.posts) <= 5
