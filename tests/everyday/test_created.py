"""Of all callers that enqueue a job with the same explicit id, exactly one is told that it has created the job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import qbull
from proxy import Proxy
from qbull.embedded.server import EmbeddedServer
from qbull.store.store import Store

ROUNDS = 5
SHAPES: dict[str, dict[str, Any]] = {"plain": {}, "priority": {"priority": 2}, "delay": {"delay": 3600}}


@pytest.fixture
async def proxy(server: EmbeddedServer, store: Store) -> AsyncIterator[Proxy]:
    async with Proxy(server.socket).running() as proxy:
        yield proxy


@pytest.fixture
async def far(server: EmbeddedServer, proxy: Proxy) -> AsyncIterator[qbull.AsyncTask[..., None]]:
    """A task whose app reaches the server through the proxy."""
    async with app_at(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0") as app:
        yield task_of(app)


@pytest.fixture
async def near(server_url: str) -> AsyncIterator[qbull.AsyncTask[..., None]]:
    """The same task in another program, whose replies all arrive."""
    async with app_at(server_url) as app:
        yield task_of(app)


def app_at(url: str) -> qbull.App:
    return qbull.App(url, prefix="test")


def task_of(app: qbull.App) -> qbull.AsyncTask[..., None]:
    work = app.queue("work")

    @work.task
    async def send(number: int) -> None: ...

    return send


async def losing_one_reply(proxy: Proxy, call: Callable[[], Awaitable[Any]]) -> Any:
    """The answer to a call whose first reply is lost on its way back."""
    before, proxy.mood = proxy.lost, "loses replies"
    calling = asyncio.ensure_future(call())
    while proxy.lost == before and not calling.done():
        await asyncio.sleep(0.001)
    proxy.mood = "fair"
    answer = await calling
    assert proxy.lost > before
    return answer


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_caller_whose_reply_was_lost_has_created_the_job(
    proxy: Proxy, far: qbull.AsyncTask[..., None], near: qbull.AsyncTask[..., None], shape: str
) -> None:
    await far.options(id="before", **SHAPES[shape]).enqueue(number=0)
    call = far.options(id="order-7", **SHAPES[shape])

    first = await losing_one_reply(proxy, lambda: call.enqueue(number=1))
    second = await call.enqueue(number=1)
    third = await near.options(id="order-7", **SHAPES[shape]).enqueue(number=1)

    assert [job.created for job in (first, second, third)] == [True, False, False]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_caller_that_came_second_has_not_created_it_whatever_is_lost(
    proxy: Proxy, far: qbull.AsyncTask[..., None], near: qbull.AsyncTask[..., None], shape: str
) -> None:
    await far.options(id="before", **SHAPES[shape]).enqueue(number=0)
    first = await near.options(id="order-7", **SHAPES[shape]).enqueue(number=1)

    second = await losing_one_reply(
        proxy, lambda: far.options(id="order-7", **SHAPES[shape]).enqueue(number=1)
    )

    assert (first.created, second.created) == (True, False)


async def test_of_many_callers_at_once_one_has_created_each_job(
    proxy: Proxy, far: qbull.AsyncTask[..., None], near: qbull.AsyncTask[..., None]
) -> None:
    """Both programs send the same ids, in batches and one by one, and replies are lost again and again."""
    await far.enqueue(number=0)
    created: dict[str, int] = {}

    async def enqueue(task: qbull.AsyncTask[..., None], id: str) -> None:
        job = await task.options(id=id).enqueue(number=1)
        created[id] = created.get(id, 0) + job.created

    for turn in range(ROUNDS):
        ids = [f"{turn}-{number}" for number in range(20)]
        calls = [enqueue(task, id) for id in ids for task in (far, near, far)]
        await losing_one_reply(proxy, lambda calls=calls: asyncio.gather(*calls))  # type: ignore[misc]

    assert set(created.values()) == {1} and len(created) == 20 * ROUNDS
