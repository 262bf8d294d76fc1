"""A priority that is new in a partition is a ready stream more: workers that read the others begin to read it too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qbull
from qbull.errors import ServerAway
from qbull.store.store import ReadyStream, Store
from qbull.store.verbs.partition import Partition
from qbull.worker import queue_runner
from qbull.worker.queue_runner import QueueRunner

NEVER = 86_400.0


def urgent_task(app: qbull.App) -> qbull.Task[[], str]:
    @app.queue("work").task
    async def urgent() -> str:
        return "ran"

    return urgent


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a worker was told of a new priority. It has nothing else to go by."""
    monkeypatch.setattr(queue_runner, "PRIORITY_POLL_SECONDS", NEVER)
    event, on_wake_up = asyncio.Event(), QueueRunner.on_wake_up

    def overheard(self: QueueRunner, base: str, word: str) -> None:
        on_wake_up(self, base, word)
        if word == "bands":
            event.set()

    monkeypatch.setattr(QueueRunner, "on_wake_up", overheard)
    return event


@pytest.mark.usefixtures("told")
async def test_a_new_priority_is_heard_by_a_worker_that_waits(app: qbull.App) -> None:
    urgent = urgent_task(app)
    async with app.worker():
        job = await urgent.options(priority=1).enqueue()

        assert await job.result(timeout=20) == "ran"


async def test_a_new_priority_is_heard_while_partitions_are_taken_up(
    app: qbull.App, told: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of a partition was decided before, and nobody tells it again."""
    urgent = urgent_task(app)
    jobs: list[qbull.Job[str]] = []
    ensure_groups = Store.ensure_groups

    async def late(self: Store, streams: dict[bytes, ReadyStream]) -> None:
        if not jobs:
            jobs.append(await urgent.options(priority=1).enqueue())
            await told.wait()
        await ensure_groups(self, streams)

    monkeypatch.setattr(Store, "ensure_groups", late)
    async with app.worker():
        assert await jobs[0].result(timeout=20) == "ran"


async def test_a_new_priority_is_looked_for_until_the_server_answers(
    app: qbull.App, told: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    urgent = urgent_task(app)
    away = 3
    bands = Partition.priority_levels

    async def sometimes(self: Partition) -> list[str]:
        nonlocal away
        if told.is_set() and away:
            away -= 1
            raise ServerAway("redis://somewhere: away")
        return await bands(self)

    async with app.worker():
        monkeypatch.setattr(Partition, "priority_levels", sometimes)
        job = await urgent.options(priority=1).enqueue()

        assert await job.result(timeout=20) == "ran"
    assert away == 0


async def test_a_new_priority_that_nobody_was_told_of_is_found(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(*_: Any) -> None: ...

    monkeypatch.setattr(queue_runner, "PRIORITY_POLL_SECONDS", 0.05)
    monkeypatch.setattr(QueueRunner, "on_wake_up", deaf)
    urgent = urgent_task(app)
    async with app.worker():
        job = await urgent.options(priority=1).enqueue()

        assert await job.result(timeout=20) == "ran"
