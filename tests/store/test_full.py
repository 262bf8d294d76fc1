"""The specification of a full server: whatever makes it emptier is let through, and only what adds jobs is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from desk import CRASHED, Desk

from conftest import every_fault
from qbull.errors import ServerRefused
from qbull.store.store import Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """That of a server of the test's own; afterwards every job must be in exactly one place."""
    store = Store(f"embedded://{tmp_path}", "test")
    await store.open()
    yield store
    faults = await every_fault(store)
    await store.close()
    assert faults == []


async def fill(store: Store) -> None:
    """From now on there is no room."""
    await store.server.call("CONFIG", "SET", "maxmemory", 1)


async def test_a_new_job_is_refused(store: Store) -> None:
    desk = await Desk.open(store)
    await fill(store)

    with pytest.raises(ServerRefused, match="out of memory"):
        await desk.enqueue("a")


async def test_a_suspect_may_run_alone(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("poison")
    for _ in range(2):
        await desk.fetch("dead")
        await desk.partition.reclaim("dead", CRASHED, None)
    (delivery,) = await desk.fetch("dead")
    await fill(store)

    await desk.partition.mark_alone(b"poison", delivery.place)
    await desk.partition.reclaim("dead", CRASHED, None)

    assert await desk.state("poison") == "failed"
