"""A worker that does not come to its start leaves nothing behind: no beat, no share, no task."""

from __future__ import annotations

import asyncio
import threading

import pytest

import qbull
from qbull.store.store import Store
from qbull.worker.queue_runner import QueueRunner


def beats() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "qbull-heartbeat"]


async def test_a_worker_that_is_cancelled_while_it_starts_leaves_nothing_behind(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.queue("work").task(name="step")(lambda: None)
    serve, serving = QueueRunner._serve, asyncio.Event()

    async def serve_and_wait(self: QueueRunner, numbers: list[int]) -> None:
        await serve(self, numbers)
        if numbers:
            serving.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(QueueRunner, "_serve", serve_and_wait)

    async def work() -> None:
        async with app.worker():
            pass

    working = asyncio.create_task(work())
    await serving.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert beats() == []
    assert await store.workers() == {}


async def test_a_worker_whose_start_fails_leaves_nothing_behind(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.queue("work").task(name="step")(lambda: None)

    async def refuse(self: QueueRunner) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(QueueRunner, "start", refuse)

    with pytest.raises(OSError, match="too many open files"):
        async with app.worker():
            pass

    assert beats() == []
    assert await store.workers() == {}
