"""Live settings reach real worker processes, and outlive the server's."""

from __future__ import annotations

from pathlib import Path

import logging_app
import pytest
from worker_processes import WorkerProcesses, runs

import qbull
from conftest import eventually
from qbull.store.store import Store


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_url: str, store: Store) -> Path:
    monkeypatch.setattr(logging_app.app, "url", server_url)
    return tmp_path / "log"


async def test_jobs_in_slots_that_were_opened_later_are_known_when_their_worker_is_killed(
    log: Path, server_url: str
) -> None:
    async with WorkerProcesses(server_url, log, environment={"LOGGING_APP_CONCURRENCY": "1"}) as fleet:
        await logging_app.work.configure(concurrency=3)
        jobs = [await logging_app.plain.enqueue(f"k{n}", seconds=30) for n in range(3)]

        async def all_begun() -> bool:
            return len(runs(log)) == 3

        await eventually(all_begun)
        fleet.kill_one()

        async def all_suspected() -> bool:
            return [info.crashes for job in jobs if (info := await job.info()) is not None] == [1, 1, 1]

        await eventually(all_suspected)
        fleet.process.kill()
    await logging_app.app.close()


async def test_a_pause_outlives_the_server(tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}"
    async with qbull.App(url) as before:
        await before.queue("email").pause()

    async with qbull.App(url) as after:
        email = after.queue("email")
        assert (await email.stats()).paused
