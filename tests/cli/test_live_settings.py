"""pause, resume, configure, reset, settings: steering a queue from a shell that has only the server's address."""

from __future__ import annotations

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell  # noqa: F401 - two are fixtures


async def test_a_queue_is_paused_and_resumed(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    shell.ok("pause", "email", "--by", "ada")
    paused = shell.json("stats", "email")
    shell.ok("resume", "email")

    assert (paused["isPaused"], paused["paused"], paused["waiting"]) == (True, 1, 0)
    assert shell.json("stats", "email")["isPaused"] is False
    assert [change["by"] for change in shell.json("settings", "email")["history"]][1:] == ["ada"]


async def test_settings_are_changed_shown_and_reset(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    shown = shell.ok("configure", "email", "--concurrency", "20", "--retry", "1,5", "--by", "ada")
    live = shell.json("settings", "email")
    history = shell.ok("settings", "email", "--history")
    after = shell.ok("reset", "email", "retry")

    assert "concurrency  20" in shown and "3 attempts, waits 1, 5 s" in shown
    assert live["settings"]["concurrency"] == 20
    assert live["changed"]["retry"]["by"] == "ada"
    assert history.count("ada") == 2
    assert "the code" in next(line for line in after.splitlines() if line.startswith("retry"))


async def test_limits_are_set_and_taken_away(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    shell.ok("configure", "email", "--rate", "100/60", "--max-active", "3")
    limited = shell.json("settings", "email")["settings"]
    shown = shell.ok("configure", "email", "--rate", "none", "--max-active", "none")

    assert (limited["rate"], limited["max_active"]) == ({"count": 100, "per": 60.0}, 3)
    assert "100 in 60 s" not in shown
    assert shell.json("settings", "email")["settings"]["rate"] is None


async def test_what_is_asked_wrongly_is_refused_in_one_line(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    assert 'queue "nowhere": not on this server' in shell.refused("pause", "nowhere")
    assert "give at least one setting: concurrency" in shell.refused("configure", "email")
    assert "concurrency=0: give a whole number from 1" in shell.refused(
        "configure", "email", "--concurrency", "0"
    )
    assert "give starts and seconds" in shell.refused("configure", "email", "--rate", "fast", code=2)
    assert "Rate(0, per=60.0): give a whole number" in shell.refused("configure", "email", "--rate", "0/60")
    assert "give a number of jobs" in shell.refused("configure", "email", "--max-active", "few", code=2)
    assert "give the seconds between attempts" in shell.refused(
        "configure", "email", "--retry", "soon", code=2
    )
    assert '"order" is no live setting' in shell.refused("reset", "email", "order")


async def test_why_a_job_is_not_running_is_said(shell: Shell, sample: SampleApp) -> None:
    job = await sample.send.options(delay=3600).enqueue(to="a")
    shell.ok("pause", "email", "--by", "ada")

    shown = shell.ok("job", "why", "email", job.id)
    said = shell.json("job", "why", "email", job.id)

    assert [line.split()[0] for line in shown.splitlines()] == ["paused", "no-worker", "due"]
    assert [reason["code"] for reason in said["reasons"]] == ["paused", "no-worker", "due"]
    assert said["reasons"][2]["until"].endswith("Z")
    assert "no job nobody" in shell.refused("job", "why", "email", "nobody")
    assert "expected a queue and the id of a job" in shell.refused("job", "email", code=2)


async def test_timeout_and_retention_are_changed_and_shown(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    shown = shell.ok("configure", "email", "--timeout", "90s", "--keep", "completed=1000,failed-for=7d")

    rows = {line.split()[0]: line for line in shown.splitlines()}
    assert "90" in rows["timeout"] and "@" in rows["timeout"]
    assert "completed 1000, failed for 7 d 0 h" in rows["keep"]
    told = shell.json("settings", "email")
    assert told["settings"]["timeout"] == 90
    assert told["settings"]["keep"]["failed_for"] == 7 * 86_400
    assert "timeout" in shell.ok("configure", "email", "--timeout", "none")
    assert shell.json("settings", "email")["settings"]["timeout"] is None
    shell.ok("reset", "email", "keep")
    assert shell.json("settings", "email")["settings"]["keep"]["failed"] == 100_000


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("--timeout", "soon", "is not a duration; write it like 90s, 15m, 2h or 7d, or none"),
        ("--keep", "forever", "for example completed=1000,failed_for=30d"),
        ("--keep", "completed=many", "for example completed=1000,failed_for=30d"),
        ("--keep", "cancelled=5", "for example completed=1000,failed_for=30d"),
    ],
)
async def test_a_timeout_or_retention_that_makes_no_sense_is_one_line(
    shell: Shell, sample: SampleApp, option: str, value: str, line: str
) -> None:
    await sample.send.enqueue(to="a")
    assert line in shell.refused("configure", "email", option, value, code=2)
