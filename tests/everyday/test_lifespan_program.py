"""Lifespans in `qbull worker`: each process starts and stops them, and a failing start does not loop quickly."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from program import WorkerProgram

import qbull
from conftest import eventually
from qbull.store.store import Store

APP = "lifespan_tasks:app"


def environment(server_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "LIFESPAN_URL": server_url,
        "LIFESPAN_LOG": str(tmp_path / "lines"),
        "LIFESPAN_FAILS": str(tmp_path / "pool"),
        "PYTHONPATH": str(Path(__file__).parents[1] / "guide"),
    }


def noted(tmp_path: Path) -> list[tuple[str, str, int]]:
    path = tmp_path / "lines"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(word, name, int(pid)) for word, name, pid in lines]


@pytest.mark.timeout(180)
async def test_every_process_starts_and_stops_its_lifespans(
    store: Store, server_url: str, tmp_path: Path
) -> None:
    options = ("--processes", "2")
    async with WorkerProgram(
        server_url, tmp_path / "log", options, environment(server_url, tmp_path), APP
    ) as program:
        await eventually(lambda: has(tmp_path, "start", 4), within=60)
        first, second = program.children()
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: has(tmp_path, "start", 6), within=60)
        [third] = {pid for _, _, pid in noted(tmp_path)} - {first, second}
        assert set(program.children()) == {second, third}

    lines = noted(tmp_path)
    for pid in (first, second, third):
        starts = [(word, name) for word, name, of in lines if of == pid][:2]
        assert starts == [("start", "client"), ("start", "pool")]
    for pid in (second, third):
        stops = [(word, name) for word, name, of in lines if of == pid][2:]
        assert stops == [("stop", "pool"), ("stop", "client")]


@pytest.mark.timeout(180)
async def test_a_failing_start_ends_the_process_with_one_line_and_is_tried_again_slowly(
    store: Store, server_url: str, tmp_path: Path
) -> None:
    (tmp_path / "pool").touch()
    output = tmp_path / "output"
    app = qbull.App(server_url, prefix="test")
    job = await ask_of(app).enqueue()
    with output.open("wb") as stream:
        program = subprocess.Popen(
            [sys.executable, "-m", "qbull.cli.main", "worker", APP],
            env=os.environ | environment(server_url, tmp_path),
            stdout=stream,
            stderr=stream,
        )
    try:
        await eventually(lambda: says(output, "starting the next one in 2 s"), within=90)
        assert await job.state() == "waiting", "a process that has not started takes no job"
        (tmp_path / "pool").unlink()
        await job.result(timeout=90)
    finally:
        program.terminate()
        await asyncio.to_thread(program.wait, 60)
        await app.close()

    lines = [line for line in output.read_text().splitlines() if "ERROR" in line or "WARNING" in line]
    failed = 'lifespan "pool" failed to start: OSError: no pool today ('
    assert failed in lines[0]
    assert "lifespan_tasks.py, line " in lines[0]
    assert lines[1].endswith("worker processes die before they run a job; starting the next one in 1 s")
    assert "Traceback" not in output.read_text()
    assert len([line for line in lines if failed in line]) <= 4
    assert ("stop", "client") in [line[:2] for line in noted(tmp_path)], "the earlier one is stopped"


def ask_of(app: qbull.App) -> qbull.Task[[], None]:
    @app.queue("numbers", concurrency=1, retry=qbull.Retry(attempts=1)).task
    async def ask() -> None: ...

    return ask


async def has(tmp_path: Path, word: str, count: int) -> bool:
    return len([line for line in noted(tmp_path) if line[0] == word]) >= count


async def says(output: Path, text: str) -> bool:
    return text in output.read_text()
