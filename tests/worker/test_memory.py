"""A worker process does not keep what one large job needed, and does not search its own code for garbage."""

from __future__ import annotations

import ctypes
from collections.abc import AsyncIterator
from pathlib import Path

import logging_app
import pytest
from worker_processes import WorkerProcesses

from conftest import eventually
from qbull.store.store import Store

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc gives memory back on request"
)


@pytest.fixture
async def log(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    monkeypatch.setattr(logging_app.app, "url", server_url)
    yield tmp_path / "log"
    await logging_app.app.close()


async def test_what_a_large_job_has_freed_goes_back_to_the_machine(log: Path, server_url: str) -> None:
    async with WorkerProcesses(server_url, log, environment={"LOGGING_APP_GIVE_BACK": "0.2"}) as fleet:
        (worker,) = fleet.children()

        swollen = await (await logging_app.swell.enqueue(key="k")).result(timeout=60)

        async def is_small_again() -> bool:
            return logging_app.anonymous_memory(worker) < swollen - 50_000

        await eventually(is_small_again, within=60)


async def test_without_it_the_memory_stays(log: Path, server_url: str) -> None:
    async with WorkerProcesses(server_url, log, environment={"LOGGING_APP_GIVE_BACK": "3600"}) as fleet:
        (worker,) = fleet.children()

        swollen = await (await logging_app.swell.enqueue(key="k")).result(timeout=60)
        await (await logging_app.touch.enqueue(key="k")).result(timeout=60)

        assert logging_app.anonymous_memory(worker) > swollen - 50_000


async def test_loaded_code_is_no_work_for_the_garbage_collector(log: Path, server_url: str) -> None:
    async def is_frozen() -> bool:
        job = await logging_app.frozen_objects.enqueue(key="k")
        return await job.result(timeout=60) > 10_000

    async with WorkerProcesses(server_url, log):
        # The first job may run before the worker has started completely.
        await eventually(is_frozen)
