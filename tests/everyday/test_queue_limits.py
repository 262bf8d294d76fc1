"""A queue has its own limit of crashes and its own time after which a silent worker is dead."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import everyday_app
import pytest
from program import WorkerProgram, has_lines, lines

import qbull
from conftest import eventually
from qbull.config import shortest_min_idle


@pytest.mark.timeout(120)
async def test_a_queue_may_refuse_a_second_run_after_a_crash(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log, environment={"EVERYDAY_MAX_CRASHES": "1"}):
        poison = await everyday_app.leave.enqueue(number=0)
        failed = await eventually(lambda: error_of(poison), within=60)

    assert failed == "its worker died once while it ran"
    assert len(lines(log, "start", "leave")) == 1


@pytest.mark.timeout(120)
async def test_the_jobs_of_a_lost_machine_come_back_after_the_time_of_their_queue(
    log: Path, server_url: str
) -> None:
    """MIN_IDLE_TIME_MS would let them wait for ten minutes."""
    environment = {"EVERYDAY_MIN_IDLE": "1", "MIN_IDLE_TIME_MS": "600000"}
    async with WorkerProgram(server_url, log, environment=environment) as lost:
        job = await everyday_app.plain.enqueue(key="a", number=1, seconds=3600)
        await eventually(lambda: has_lines(log, 1, "start", "a"))
        for pid in [lost.process.pid, *lost.children()]:
            os.kill(pid, signal.SIGKILL)
    async with WorkerProgram(server_url, log, environment=environment):
        await job.result(timeout=60)

    assert [line.word for line in lines(log, "", "a")] == ["start", "start", "end"]


def test_the_queue_that_wants_its_jobs_back_first_decides_for_its_worker() -> None:
    app = qbull.App("redis://127.0.0.1:1/0")
    queues = [app.queue("fast", min_idle=5), app.queue("slow", min_idle=300), app.queue("other")]

    assert shortest_min_idle([queue.settings for queue in queues], 30) == 5
    assert shortest_min_idle([queues[1].settings, queues[2].settings], 30) == 30
    assert shortest_min_idle([queues[1].settings], 30) == 300


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"max_crashes": 0}, "max_crashes=0: give a whole number from 1 to 255"),
        ({"min_idle": 0.1}, "min_idle=0.1: give seconds, at least 0.5, or None"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(settings: dict[str, float], fact: str) -> None:
    app = qbull.App("redis://127.0.0.1:1/0")

    with pytest.raises(qbull.ConfigError, match=fact):
        app.queue("work", **settings)  # type: ignore[arg-type]


async def error_of(job: qbull.Job[None]) -> str | None:
    info = await job.info()
    return info.error if info is not None and info.state == "failed" else None
