"""A worker that disappears with its machine is a problem until another one has come."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from program import WorkerProgram

from conftest import eventually
from qbull.core.health import find_problems
from qbull.core.health_problem import HealthProblem
from qbull.store.read.health import read_health
from qbull.store.store import Store


async def test_a_machine_that_vanishes_is_told_until_it_is_replaced(
    store: Store, server_url: str, tmp_path: Path
) -> None:
    environment = {"MIN_IDLE_TIME_MS": "1000"}
    async with WorkerProgram(server_url, tmp_path / "log", environment=environment) as old:
        [worker] = await store.workers()
        assert await lost(store) is None
        [child] = old.children()
        os.kill(old.process.pid, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        silent = await eventually(lambda: lost(store))
    async with WorkerProgram(server_url, tmp_path / "log", environment=environment):
        await eventually(lambda: forgotten(store, worker))
        assert await lost(store) is None

    assert (silent.fact, silent.worker) == ("1 worker was lost and not replaced", worker)
    assert silent.severity == "warning" and silent.since_ms is not None


async def lost(store: Store) -> HealthProblem | None:
    reading = await read_health(store, [await store.settings(name) for name in await store.queues()])
    return next((one for one in find_problems(reading.facts) if one.kind == "lost"), None)


async def forgotten(store: Store, worker: str) -> bool:
    """Whether the new worker has reclaimed what the old one had."""
    return worker not in await store.remembered_workers()
