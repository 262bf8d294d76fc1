"""Measure: workers write down how long jobs waited and ran, together and now and then; never for each job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

import qbull
from conftest import eventually
from qbull.core.histograms import SCRIPT_ERRORS_FIELD, STARTED_FIELD, read
from qbull.store.read import histograms
from qbull.store.store import Store
from qbull.worker import histograms as worker_histograms


async def test_a_worker_that_stops_leaves_its_figures_behind(app: qbull.App, store: Store) -> None:
    email = app.queue("email", retry=qbull.Retry(delays=(0,)))

    @email.task
    async def send(to: str) -> None:
        await asyncio.sleep(0.01)

    @email.task
    async def bounce() -> None:
        raise ValueError

    await send.enqueue_many([{"to": "a"}] * 5)
    await bounce.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    named = await histograms.read(store, "email")
    durations, waits = read(named)
    assert {task: one.count for task, one in durations.items()} == {"bounce": 2, "send": 5}
    assert named[STARTED_FIELD] == 7 and waits.count == 7
    assert durations["send"].sum >= 0.05
    assert 0 <= waits.sum < 60


async def test_the_waits_of_the_first_jobs_of_a_worker_count(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited longest. Their start can be placed on the server's clock only if the worker knows it by then."""
    email = app.queue("email")
    add = histograms.add

    async def slow_add(store: Store, queue: str, token: str, counted: Mapping[str, int]) -> int:
        await asyncio.sleep(0.2)
        return await add(store, queue, token, counted)

    @email.task
    async def send() -> None: ...

    monkeypatch.setattr(worker_histograms.histograms, "add", slow_add)
    await send.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    _, waits = read(await histograms.read(store, "email"))
    assert waits.count == 1


async def test_figures_of_several_workers_add_up(app: qbull.App, store: Store) -> None:
    email = app.queue("email")

    @email.task
    async def send() -> None: ...

    for _ in range(3):
        await send.enqueue()
        async with app.worker() as worker:
            await worker.drain()

    assert (await histograms.read(store, "email"))[STARTED_FIELD] == 3


async def test_they_are_written_down_while_it_runs(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_histograms, "HISTOGRAM_FLUSH_SECONDS", 0.05)
    email = app.queue("email")

    @email.task
    async def send() -> None: ...

    async with app.worker() as worker:
        await send.enqueue_many([{}] * 20)
        await worker.drain()

        async def all_of_them() -> bool:
            return (await histograms.read(store, "email")).get(STARTED_FIELD) == 20

        await eventually(all_of_them)


async def test_what_is_sent_twice_is_counted_once(store: Store) -> None:
    for _ in range(2):
        await histograms.add(store, "email", "token", {"d:7:send": 3})
    await histograms.add(store, "email", "other", {"d:7:send": 1})

    assert await histograms.read(store, "email") == {"d:7:send": 4}


async def test_scripts_that_the_server_refuses_are_counted_for_their_queue(
    app: qbull.App, store: Store
) -> None:
    app.queue("email"), app.queue("emails")
    async with app.worker() as worker:
        for base in ("{test:email}:", "{test:email:0}:", "{test:emails:3}:"):
            with pytest.raises(qbull.ServerRefused):
                await worker._store.server.script("histograms", base, f"token {base}", "name", "no number")

    assert (await histograms.read(store, "email"))[SCRIPT_ERRORS_FIELD] == 2
    assert (await histograms.read(store, "emails"))[SCRIPT_ERRORS_FIELD] == 1
