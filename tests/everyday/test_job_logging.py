"""Job logging: `qbull worker` logs each job, and every line of a task names its job."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import logging_tasks
import pytest
from program import WorkerProgram

import qbull
from conftest import eventually
from qbull.store.store import Store

JSON = {"QBULL_LOG_FORMAT": "json"}


@pytest.fixture
async def log(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    monkeypatch.setattr(logging_tasks.app, "url", server_url)
    yield tmp_path / "log"
    await logging_tasks.app.close()


def serving(url: str, log: Path, *options: str, **environment: str) -> WorkerProgram:
    return WorkerProgram(url, log, options, environment, app="logging_tasks:app")


def events(program: WorkerProgram, logger: str = "") -> list[dict[str, Any]]:
    """The JSON lines of a worker."""
    found = [json.loads(line) for line in program.text().splitlines() if line.startswith("{")]
    return [event for event in found if logger in ("", event["logger"])]


async def has_events(program: WorkerProgram, count: int, logger: str) -> bool:
    return len(events(program, logger)) >= count


async def test_the_start_and_the_end_of_each_job_are_logged(log: Path, server_url: str) -> None:
    async with serving(server_url, log, **JSON) as program:
        job = await logging_tasks.render.enqueue(customer="ada")
        await eventually(lambda: has_events(program, 2, "qbull.jobs"))

    start, end = events(program, "qbull.jobs")
    same = {"job_id": job.id, "task": "render", "queue": "reports", "key": "ada", "attempt": 1}
    assert start["message"] == f'queue "reports": job {job.id} (render) started: attempt 1, key "ada"'
    assert start.items() >= same.items()
    assert end["message"].startswith(f'queue "reports": job {job.id} (render) ended: completed, ')
    assert end.items() >= (same | {"outcome": "completed", "level": "info"}).items()
    assert 0 <= end["duration"] < 60


@pytest.mark.parametrize("task", ["render", "render_in_a_thread", "render_in_a_process"])
async def test_every_line_of_a_task_names_its_job(log: Path, server_url: str, task: str) -> None:
    async with serving(server_url, log, **JSON) as program:
        job = await getattr(logging_tasks, task).enqueue(**({"customer": "ada"} if task == "render" else {}))
        await eventually(lambda: has_events(program, 1, "shop.reports"), within=30)

    line = events(program, "shop.reports")[0]
    assert line["message"].startswith("rendering")
    assert (line["job_id"], line["queue"], line["level"]) == (job.id, "reports", "info")
    # The application's own values win.
    assert line["task"] == ("my own" if task == "render" else task)


async def test_a_line_in_text_names_its_job_too(log: Path, server_url: str) -> None:
    async with serving(server_url, log) as program:
        job = await logging_tasks.render_in_a_thread.enqueue()
        await eventually(lambda: _says(program, "ended: completed"))

    [line] = [line for line in program.text().splitlines() if "rendering" in line]
    assert line.endswith(f"INFO    shop.reports: rendering in a thread [reports render_in_a_thread {job.id}]")


async def test_json_lines_carry_extra(log: Path, server_url: str) -> None:
    async with serving(server_url, log, **JSON) as program:
        await logging_tasks.render.enqueue(customer="ada")
        await logging_tasks.render_in_a_process.enqueue()
        await eventually(lambda: has_events(program, 3, "shop.reports"), within=30)

    pages = {event.get("pages") for event in events(program, "shop.reports")}
    assert pages == {3, 4, None}


async def test_logging_in_a_cpu_process_arrives_in_the_format_of_the_worker(
    log: Path, server_url: str
) -> None:
    async with serving(server_url, log, **JSON) as program:
        job = await logging_tasks.render_in_a_process.enqueue()
        await eventually(lambda: has_events(program, 2, "shop.reports"), within=30)

    info, error = events(program, "shop.reports")
    assert (info["message"], info["odd"]) == ("rendering in a process with 100%", "\ud800")
    assert (error["message"], error["level"], error["job_id"]) == ("and an error", "error", job.id)
    assert "ValueError: caught" in error["exception"]


async def test_a_line_of_a_chunk_names_its_jobs(log: Path, server_url: str) -> None:
    async with serving(server_url, log, **JSON) as program:
        jobs = [await logging_tasks.render_many.enqueue(name) for name in ("a", "b")]
        await eventually(lambda: has_events(program, 1, "shop.reports"))

    [line] = events(program, "shop.reports")
    assert (line["job_id"], line["task"]) == (",".join(job.id for job in jobs), "render_many")


@pytest.mark.parametrize("task", ["break_down", "break_down_in_a_process"])
async def test_the_traceback_of_each_failed_attempt_is_logged(log: Path, server_url: str, task: str) -> None:
    async with serving(server_url, log, **JSON) as program:
        job = await getattr(logging_tasks, task).enqueue()
        await eventually(lambda: _has_state(job, "failed"), within=30)
        await eventually(lambda: has_events(program, 4, "qbull.jobs"))

    failures = [event for event in events(program, "qbull.worker.failures") if event.get("job_id") == job.id]
    assert [(event["level"], event["attempt"]) for event in failures] == [("info", 1), ("error", 2)]
    assert all("KeyError: 'no such page'" in event["exception"] for event in failures)
    assert all(f"in {task}" in event["exception"] for event in failures)
    ends = [event["outcome"] for event in events(program, "qbull.jobs") if "outcome" in event]
    assert ends == ["retry", "failed"]


async def test_no_line_of_a_traceback_can_be_taken_for_an_event(log: Path, server_url: str) -> None:
    async with serving(server_url, log) as program:
        await logging_tasks.break_down.enqueue()
        await eventually(lambda: _says(program, "failed permanently"), within=30)

    trace = [line for line in program.text().splitlines() if "Traceback" in line or "KeyError: 'no" in line]
    assert [line for line in trace if "qbull.worker" not in line] != []
    assert all(line.startswith("    ") for line in trace if "qbull.worker" not in line)


@pytest.mark.parametrize("way", ["flag", "environment"])
async def test_the_job_log_can_be_turned_off(log: Path, server_url: str, way: str) -> None:
    options = ["--no-job-log"] if way == "flag" else []
    environment = {"QBULL_JOB_LOG": "no"} if way == "environment" else {}
    async with serving(server_url, log, *options, **JSON, **environment) as program:
        await logging_tasks.render.enqueue(customer="ada")
        await eventually(lambda: has_events(program, 1, "shop.reports"))
        job = await logging_tasks.break_down.enqueue()
        await eventually(lambda: _has_state(job, "failed"))

    assert events(program, "qbull.jobs") == []
    assert len([event for event in events(program, "qbull.worker.failures") if "exception" in event]) == 2


async def test_the_logging_of_the_application_is_kept(log: Path, server_url: str, tmp_path: Path) -> None:
    own = tmp_path / "own.log"
    async with serving(server_url, log, LOGGED_APP_CONFIG=str(own)) as program:
        await logging_tasks.render.enqueue(customer="ada")
        await logging_tasks.render_in_a_process.enqueue()
        await eventually(lambda: _has_text(own, "and an error"), within=30)
        await eventually(lambda: _has_text(own, "ended: completed", 2))

    lines = own.read_text().splitlines()
    assert lines.count("OWN INFO shop.reports rendering on the loop") == 1
    assert lines.count("OWN INFO shop.reports rendering in a process with 100%") == 1
    assert "shop.reports" not in program.text()


async def _says(program: WorkerProgram, text: str) -> bool:
    return text in program.text()


async def _has_text(path: Path, text: str, times: int = 1) -> bool:
    return path.exists() and path.read_text().count(text) >= times


async def _has_state(job: qbull.Job[Any], state: str) -> bool:
    return await job.state() == state
