"""purge, cancel by filter, pause --all and times as people write them: an ordinary day in a shell."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell  # noqa: F401 - two are fixtures

import qbull
from conftest import eventually


@pytest.fixture(name="filled")
async def fill(sample: SampleApp) -> SampleApp:
    for n in range(3):
        await sample.send.enqueue(to=f"box {n}")
        await sample.talk.enqueue()
        await sample.send.options(delay=3600).enqueue(to=f"later {n}")
    return sample


@pytest.mark.usefixtures("filled")
async def test_jobs_that_have_not_started_are_purged(shell: Shell) -> None:
    assert shell.ok("purge", "email", "--task", "talk", "--yes") == "3\n"
    assert shell.ok("purge", "email", "--state", "delayed", "--payload", "to=later 1", "--yes") == "1\n"
    assert shell.ok("purge", "email", "--yes") == "5\n"

    assert shell.json("stats", "email")["total"] == 0


@pytest.mark.usefixtures("filled")
async def test_a_script_must_confirm_a_purge(shell: Shell) -> None:
    assert "confirm it with --yes" in shell.refused("purge", "email", code=2)

    assert shell.json("stats", "email")["total"] == 9


@pytest.mark.usefixtures("filled")
async def test_jobs_are_cancelled_by_filter(shell: Shell) -> None:
    assert shell.ok("cancel", "email", "--task", "talk", "--reason", "too late") == "3\n"
    assert shell.ok("cancel", "email", "--after", "2h", "--state", "delayed") == "3\n"
    assert shell.ok("cancel", "email", "--all") == "3\n"

    cancelled = shell.json("jobs", "email", "--state", "cancelled", "--task", "talk")
    assert [job["error"] for job in cancelled] == ["too late"] * 3
    assert shell.json("stats", "email")["cancelled"] == 9


@pytest.mark.usefixtures("filled")
async def test_a_cancel_names_one_job_or_a_filter(shell: Shell) -> None:
    assert "a filter such as --task, or --all" in shell.refused("cancel", "email", code=2)
    assert "a filter such as --task, or --all" in shell.refused(
        "cancel", "email", "--state", "active", code=2
    )
    assert "omit one of them" in shell.refused("cancel", "email", "some-id", "--task", "send", code=2)


@pytest.mark.usefixtures("filled")
async def test_jobs_are_rescheduled_by_filter(shell: Shell) -> None:
    assert shell.ok("reschedule", "email", "--task", "send", "--delay", "2d") == "6\n"
    due = [job["dueAt"] for job in shell.json("jobs", "email", "--state", "delayed")]
    assert len(due) == 6
    assert max(due) > (datetime.now(UTC) + timedelta(days=1.9)).isoformat()

    assert (
        shell.ok("reschedule", "email", "--state", "delayed", "--payload", "to=box 1", "--at", "now") == "1\n"
    )
    assert shell.ok("reschedule", "email", "--all", "--at", "2030-01-31T12:00:00Z") == "9\n"
    assert shell.ok("reschedule", "email", "--all", "--at", "2030-01-31T12:00:00Z") == "0\n"
    assert {job["dueAt"] for job in shell.json("jobs", "email", "--state", "delayed")} == {
        "2030-01-31T12:00:00.000Z"
    }
    assert shell.ok("reschedule", "email", "--all", "--delay", "0") == "9\n"
    assert shell.json("stats", "email")["waiting"] == 9


@pytest.mark.usefixtures("filled")
async def test_a_reschedule_names_one_job_or_a_filter_and_one_time(shell: Shell) -> None:
    assert "a filter such as --task, or --all" in shell.refused("reschedule", "email", "--delay", "5", code=2)
    assert "--delay or --at" in shell.refused("reschedule", "email", "--all", code=2)
    assert "in two hours" in shell.refused("reschedule", "email", "--all", "--at", "soon")
    assert "omit one of them" in shell.refused("reschedule", "email", "x", "--all", "--at", "now", code=2)


async def test_a_coming_time_is_written_as_people_do(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="b")
    enqueue = ("enqueue", "email", "send", '{"to": "a"}')
    before = datetime.now(UTC)
    ids = [
        shell.ok(*enqueue, *flags.split()).strip()
        for flags in ("--at 2h", "--at tomorrow", "--delay 2h", "--at 2035-01-31", "--expires 2h")
    ]
    two_hours, tomorrow, delay, date, waiting = (shell.json("job", "email", id) for id in ids)

    for job in (two_hours, delay):
        due = datetime.fromisoformat(job["dueAt"])
        assert timedelta(hours=2) <= due - before + timedelta(seconds=1) < timedelta(hours=2, minutes=5)
    assert before < datetime.fromisoformat(tomorrow["dueAt"]) <= before + timedelta(days=1, hours=1)
    assert date["dueAt"][:7] in ("2035-01", "2035-02")
    assert waiting["state"] == "waiting"
    assert waiting["expiresAt"] is not None


async def test_times_are_written_as_people_do(app: qbull.App, shell: Shell, sample: SampleApp) -> None:
    for n in range(2):
        await sample.send.enqueue(to=str(n))
    async with app.worker(["email"]) as worker:
        await worker.drain()

    def count(*options: str) -> int:
        return len(shell.json("jobs", "email", "--state", "completed", *options))

    today = datetime.now(UTC).strftime("%Y-%m-%d")
    assert count("--after", "yesterday") == count("--after", "2h") == 2
    assert count("--before", "yesterday") == count("--before", "2h") == 0
    assert count("--after", "2020-01-01") == count("--before", "now") == 2
    assert count("--before", "2020-01-01") == 0
    assert count("--after", f"{today}T00:00:00Z") == 2
    assert "is not a time; write it like" in shell.refused("jobs", "email", "--after", "soon", code=2)
    assert "has no time zone" in shell.refused("jobs", "email", "--after", f"{today}T00:00", code=2)
    assert shell.ok("clean", "email", "--state", "completed", "--older-than", "2h") == "0\n"
    assert shell.ok("clean", "email", "--state", "completed", "--older-than", "0") == "2\n"


async def test_active_jobs_are_listed_with_their_start(
    app: qbull.App, shell: Shell, sample: SampleApp, tmp_path: Path
) -> None:
    job = await sample.wait_for.enqueue(mark=str(tmp_path / "one"))
    async with app.worker(["slow"]):
        await eventually(lambda: exists(tmp_path / "one.begun"), within=30)
        listed = await asyncio.to_thread(shell.ok, "jobs", "slow", "--state", "active")
        details = await asyncio.to_thread(shell.ok, "job", "slow", job.id)
        (tmp_path / "one.go").touch()
        await job.result(timeout=30)

    head, row = listed.splitlines()
    assert "started" in head
    assert re.search(r"(now|\d+(\.\d+)? m?s ago)", row), row
    assert re.search(r"  started   \d{4}-.* \((now|.* ago)\)", details), details


async def exists(path: Path) -> bool:
    return path.exists()


async def test_all_queues_are_paused_and_resumed(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")
    await sample.ship.enqueue(customer="b")

    paused = shell.ok("pause", "--all", "--wait", "30s")
    assert paused.splitlines() == [
        'queue "email": paused; run "qbull resume --all" to resume it',
        'queue "orders": paused; run "qbull resume --all" to resume it',
        "no job is running",
    ]
    assert all(shell.json("stats", name)["isPaused"] for name in ("email", "orders"))

    assert shell.ok("resume", "--all") == 'queue "email": resumed\nqueue "orders": resumed\n'
    assert not any(shell.json("stats", name)["isPaused"] for name in ("email", "orders"))


async def test_a_pause_names_a_queue_or_all(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    assert "name a queue, or give --all" in shell.refused("pause", code=2)
    assert "name a queue, or give --all" in shell.refused("pause", "email", "--all", code=2)
    assert "name a queue, or give --all" in shell.refused("resume", code=2)


async def test_a_pause_that_waits_in_vain_fails(
    app: qbull.App, shell: Shell, sample: SampleApp, tmp_path: Path
) -> None:
    job = await sample.wait_for.enqueue(mark=str(tmp_path / "one"))
    async with app.worker(["slow"]):
        await eventually(lambda: exists(tmp_path / "one.begun"), within=30)
        done = await asyncio.to_thread(shell.run, "pause", "slow", "--wait", "1s")
        (tmp_path / "one.go").touch()
        await job.result(timeout=30)

    assert done.code == 1
    assert 'queue "slow" is paused, but 1 of its jobs still run after 1 s' in done.err
