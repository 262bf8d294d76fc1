"""`qbull schedules` and `qbull run`: what runs when, and what a person can do about it."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import pytest
from shell import Shell, open_shell, seen  # noqa: F401

APP = """
import qbull

app = qbull.App()
maintenance = app.queue("maintenance", retry=qbull.Retry(attempts=1))


@maintenance.cron("0 9 * * *", tz="America/Argentina/Cordoba", name="daily-report")
async def daily_report() -> str:
    return "reported"


@maintenance.task
async def clean(older_than: int) -> int:
    return older_than


@maintenance.task
async def broken() -> None:
    raise ValueError("no disk")
"""


@pytest.fixture
def office(shell: Shell, store: object) -> Shell:
    (shell.directory / "office.py").write_text(APP)
    return shell


def test_a_schedule_of_the_code_is_listed_with_its_next_runs(office: Shell) -> None:
    (found,) = office.json("schedules", "-A", "office:app")

    assert (found["name"], found["queue"], found["task"]) == ("daily-report", "maintenance", "daily-report")
    assert (found["cron"], found["tz"], found["source"]) == ("0 9 * * *", "America/Argentina/Cordoba", "code")
    assert [datetime.fromisoformat(at).hour for at in found["next"]] == [12] * 5
    assert found["problem"] == "no worker has written it to the server yet"
    assert found["lastRun"] is None


def test_the_table_says_when_and_what_is_wrong(office: Shell) -> None:
    out = office.ok("schedules", "-A", "office:app")

    assert "daily-report" in out and "09:00:00 -03" in out and "no worker has written it" in out


def test_a_worker_brings_it_and_a_person_runs_it(office: Shell) -> None:
    worker = office.start("worker", "office:app")
    seen(lambda: "maintenance" in office.ok("workers"))
    seen(lambda: office.json("schedules") and office.json("schedules")[0]["problem"] is None)

    assert office.ok("run", "daily-report", "--wait", "20").strip() == '"reported"'

    (found,) = office.json("schedules")
    assert found["lastRun"]["state"] == "completed"
    job = office.json("job", "maintenance", found["lastRun"]["jobId"])
    assert job["schedule"] == "daily-report"
    worker.terminate()
    worker.wait(30)


def test_a_schedule_is_made_changed_paused_resumed_previewed_and_removed(office: Shell) -> None:
    app = ("-A", "office:app")

    said = office.ok("schedules", "put", "nightly", "maintenance/clean", '{"older_than": 5}', "--cron", "30 2 * * *", "--tz", "Europe/Berlin", *app)  # fmt: skip
    assert "nightly: next run" in said and "02:30:00 CE" in said

    office.ok("schedules", "pause", "nightly", *app)
    (_, paused) = office.json("schedules", *app)
    assert (paused["paused"], paused["next"], paused["source"]) == (True, [], "run time")
    assert len(office.json("schedules", "preview", "nightly", "--count", "3", *app)) == 3
    office.ok("schedules", "resume", "nightly", *app)
    changed = office.json("schedules", "put", "nightly", "maintenance/clean", '{"older_than": 7}', "--every", "60", *app)  # fmt: skip
    assert (changed["args"], changed["every"], changed["paused"]) == ({"older_than": 7}, 60.0, False)
    office.ok("schedules", "remove", "nightly", *app)

    assert [found["name"] for found in office.json("schedules", *app)] == ["daily-report"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("schedules", "put", "x", "maintenance/clean", '{"older_than": "a"}', "--every", "5"), "older_than: expected int, got str"),
        (("schedules", "put", "x", "maintenance/clean", '{"older_than": 1}', "--cron", "61 * * * *"), 'cron="61 * * * *": its minute "61" cannot be read; give 0-59'),
        (("schedules", "put", "x", "maintenance/clean", '{"older_than": 1}', "--cron", "@daily", "--tz", "Mars/Phobos"), 'tz="Mars/Phobos": there is no such time zone'),
        (("schedules", "put", "x", "maintenance/clean", '{"older_than": 1}'), "give either a cron expression"),
        (("schedules", "put", "x", "maintenance/clean", "[1]", "--every", "5"), "must be a JSON object"),
        (("schedules", "put", "x", "maintenance/clean", '{"older_than": 1}', "--every", "5", "--start", "soon"), '"soon" is not a time; write it like'),
        (("schedules", "put", "x", "elsewhere/clean", "--every", "5"), '"elsewhere": not on this server'),
        (("schedules", "pause", "nope"), 'schedule "nope": there is none of this name; there is: daily-report'),
        (("run", "nope"), 'schedule "nope": there is none of this name'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(office: Shell, arguments: tuple[str, ...], line: str) -> None:
    assert line in office.refused(*arguments, "-A", "office:app")


def test_a_wrong_zone_in_the_environment_is_one_line(office: Shell) -> None:
    assert 'TZ="Mars/Phobos": there is no such time zone' in office.refused("schedules", TZ="Mars/Phobos")


def test_nothing_to_list_is_said(shell: Shell, store: object) -> None:
    done = shell.run("schedules")

    assert (done.code, done.out) == (0, "")
    assert "no schedules; declare one" in done.err


def test_the_doctor_knows_schedules(office: Shell) -> None:
    office.ok("schedules", "put", "nightly", "maintenance/broken", "--every", "3600", "-A", "office:app")

    lonely = office.run("doctor")
    worker = office.start("worker", "office:app")
    seen(lambda: len(office.json("schedules")) == 2 and not office.json("schedules")[0]["problem"])
    healthy = office.run("doctor")
    office.ok("run", "nightly")
    seen(lambda: office.json("schedules")[1]["lastRun"]["state"] == "failed")
    failed = office.run("doctor")
    worker.terminate()
    worker.wait(30)

    assert 'note     schedule "nightly": no worker serves queue "maintenance"' in lonely.out
    assert "ok       schedules: the data of all 2 is consistent" in healthy.out
    assert 'note     schedule "nightly": its last run failed: ValueError: no disk' in failed.out


def test_the_module_is_not_needed_to_look(office: Shell) -> None:
    office.ok("schedules", "put", "nightly", "maintenance/broken", "--every", "3600", "-A", "office:app")
    Path(office.directory / "office.py").unlink()
    assert "office" not in sys.modules

    assert [found["name"] for found in office.json("schedules")] == ["nightly"]
    assert office.ok("schedules", "preview", "nightly", "--count", "1").count("\n") == 1
