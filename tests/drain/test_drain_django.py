"""Draining a Django project: rows that django-celery-beat and django-celery-results have written themselves.

Everything runs in processes of its own, because settings of Django are there once in a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from qbull.store.store import Store

pytest.importorskip("django_celery_beat", reason="django-celery-beat does not support this Django")
pytestmark = pytest.mark.timeout(150)

PROJECT = {
    "proj/__init__.py": "from .celery import app as celery_app\n",
    "proj/settings.py": """
        import os

        SECRET_KEY = "x"
        USE_TZ = True
        TIME_ZONE = "UTC"
        INSTALLED_APPS = ["django_celery_beat", "django_celery_results"]
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite"}}
        CELERY_BROKER_URL = os.environ["TEST_BROKER"]
        CELERY_TASK_ROUTES = {"proj.mail": {"queue": "mail"}}
    """,
    "proj/celery.py": """
        import os

        from qbull.compat.celery import Celery

        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
        app = Celery("proj")
        app.config_from_object("django.conf:settings", namespace="CELERY")


        @app.task(name="proj.clean")
        def clean(older_than, dry=False):
            return older_than


        @app.task(name="proj.mail")
        def mail(to="all"):
            return to
    """,
}
FILL_BEAT = """
    from datetime import UTC, datetime, timedelta
    from django_celery_beat.models import *

    soon = datetime.now(UTC) + timedelta(days=30)
    every = IntervalSchedule.objects.create(every=10, period="minutes")
    night = CrontabSchedule.objects.create(minute="30", hour="2", timezone="Europe/Berlin")
    both = CrontabSchedule.objects.create(minute="0", hour="1", day_of_week="1", day_of_month="13")
    noon = ClockedSchedule.objects.create(clocked_time=datetime(2100, 1, 1, 12, tzinfo=UTC))
    sun = SolarSchedule.objects.create(event="sunset", latitude=50, longitude=10)


    def add(name, task="proj.clean", args="[60]", **more):
        PeriodicTask.objects.create(name=name, task=task, args=args, **more)


    add("Clean up", interval=every)
    add("nightly", crontab=night, args="[]", kwargs='{"older_than": 5, "dry": true}', expires=soon)
    add("letters", "proj.mail", "[]", crontab=night)
    add("once", "proj.mail", '["ann"]', clocked=noon, one_off=True)
    add("sleeping", interval=every, enabled=False)
    add("both days", crontab=both)
    add("the sun", solar=sun)
    add("unknown", "proj.gone", interval=every)
    add("wrong", args="[1, 2, 3]", interval=every)
    add("first", interval=every, priority=3)
    add("only once", interval=every, one_off=True)
"""
FILL_RESULTS = """
    import celery
    from celery.app.task import Context
    from django_celery_results.models import TaskResult

    old = celery.Celery("old", set_as_current=False)
    old.conf.update(result_backend="django-db", result_extended=True)


    @old.task(name="proj.clean", bind=True)
    def clean(self, older_than, dry=False): ...


    def store(id, value, state, args, kwargs, name="proj.clean"):
        request = Context(
            id=id, task=name, args=args, kwargs=kwargs, argsrepr=repr(args), kwargsrepr=repr(kwargs)
        )
        trace = 'Traceback (most recent call last):\\n  File "x.py", line 1\\nValueError: no'
        old.backend.store_result(id, value, state, traceback=trace, request=request)


    store("failed-1", ValueError("no"), "FAILURE", (60,), {"dry": True})
    store("failed-2", ValueError("no", 2), "FAILURE", [5], {})
    store("unknown", ValueError("no"), "FAILURE", (), {}, name="proj.gone")
    store("unreadable", ValueError("no"), "FAILURE", (object(),), {})
    store("good", 5, "SUCCESS", (60,), {})
"""


class Project:
    """A Django project in a directory, on the server of the test."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        for name, text in PROJECT.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(textwrap.dedent(text))
        foreign = ("QBULL_URL", "REDIS_URL")
        self.environment = {name: value for name, value in os.environ.items() if name not in foreign} | {
            "TEST_BROKER": url,
            "QBULL_PREFIX": "test",
            "DJANGO_SETTINGS_MODULE": "proj.settings",
            "PYTHONPATH": str(directory),
        }
        self.python("from django.core.management import call_command\ncall_command('migrate', verbosity=0)")

    def python(self, code: str) -> str:
        start = "import django\ndjango.setup()\n"
        done = self._run("-c", start + textwrap.dedent(code))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def qbull(self, *arguments: str) -> tuple[int, Any]:
        """Run a command with --json. Returns its exit code and its report."""
        done = self._run("-m", "qbull", *arguments, "--app", "proj.celery:app", "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def look(self, code: str) -> Any:
        """Run code with the app, and return what it assigns to `seen`."""
        start = "import json\nfrom proj.celery import app\napp._loaded()\n"
        end = "\nprint(json.dumps(seen, default=str))\napp.close_sync()"
        return json.loads(self.python(start + textwrap.dedent(code) + end))

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "ignore", *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path, server_url: str, store: Store) -> Project:
    return Project(tmp_path, server_url)


SCHEDULES = """
    seen = {
        each.name: [each.queue, each.task, each.cron, each.every, each.tz, each.args, bool(each.end)]
        for each in app.run_sync(app.schedules.list())
    }
"""
ENABLED = """
    from django_celery_beat.models import PeriodicTask

    print(*sorted(PeriodicTask.objects.filter(enabled=True).values_list("name", flat=True)), sep=",", end="")
"""

ENABLE_AGAIN = """
    from django_celery_beat.models import PeriodicTask

    rows = PeriodicTask.objects
    rows.filter(name__in=["Clean up", "nightly", "once"]).update(enabled=True)
    rows.filter(name="letters").update(enabled=True, kwargs='{"to": "bob"}')
"""


def test_rows_of_the_beat_tables_become_schedules_and_jobs(project: Project) -> None:
    project.python(FILL_BEAT)
    command = ("drain", "django-celery-beat")

    tried = project.qbull(*command, "--dry-run")
    nothing = project.look(SCHEDULES)
    code, report = project.qbull(*command)

    assert (tried[0], tried[1]["moved"], nothing) == (0, 4, {})
    assert (code, report["moved"], report["queues"]) == (1, 4, {"celery": 2, "mail": 2})
    assert project.look(SCHEDULES) == {
        "Clean-up": ["celery", "proj.clean", None, 600.0, "UTC", {"older_than": 60}, False],
        "nightly": [
            "celery",
            "proj.clean",
            "30 2 * * *",
            None,
            "Europe/Berlin",
            {"older_than": 5, "dry": True},
            True,
        ],
        "letters": ["mail", "proj.mail", "30 2 * * *", None, "Europe/Berlin", {}, False],
    }
    [job] = project.look(
        "seen = [[j.queue, j.task, j.payload, j.due_at] for j in app.run_sync(app.queues['mail'].jobs('delayed'))]"
    )
    assert job == ["mail", "proj.mail", {"to": "ann"}, "2100-01-01 12:00:00+00:00"]
    reasons = {each["example"]: each["reason"] for each in report["left"]}
    assert {name: reason.partition(";")[0][:45] for name, reason in reasons.items()} == {
        "both days": "crontab(day_of_week=…, day_of_month=…): in Ce",
        "the sun": "it follows the sun",
        "unknown": 'no task "proj.gone" is declared in the app',
        "wrong": 'task "proj.clean": too many positional argume',
        "first": "it has priority=3",
        "only once": "it runs once (one_off)",
    }
    assert project.python(ENABLED) == "both days,first,only once,the sun,unknown,wrong"


def test_a_drain_that_was_killed_before_it_disabled_the_row_continues(project: Project) -> None:
    project.python(FILL_BEAT)
    command = ("drain", "django-celery-beat")
    project.qbull(*command)
    # The state that a kill leaves: the server has the schedules, and the rows are still enabled.
    project.python(ENABLE_AGAIN)
    before = project.look(SCHEDULES)

    code, report = project.qbull(*command)

    assert (code, report["moved"]) == (1, 3)
    assert project.look(SCHEDULES) == before
    assert project.look("seen = app.run_sync(app.queues['mail'].stats()).total") == 1
    [letters] = [each["reason"] for each in report["left"] if each["example"] == "letters"]
    assert letters == 'there is a schedule "letters" already; remove one of the two'


def test_failed_results_become_dead_letters_that_can_be_redriven(project: Project) -> None:
    project.python(FILL_RESULTS)
    command = ("drain", "django-celery-results")

    tried = project.qbull(*command, "--dry-run")
    code, report = project.qbull(*command)
    again = project.qbull(*command)

    assert (tried[1]["moved"], code, report["moved"], again[1]["moved"]) == (2, 1, 2, 0)
    assert sorted(each["example"] for each in report["left"]) == ["unknown", "unreadable"]
    assert project.look(
        "seen = sorted([j.id, j.state, j.payload, j.error, 'ValueError: no' in j.stacktrace]"
        " for j in app.run_sync(app.queues['celery'].jobs('failed')))"
    ) == [
        ["failed-1", "failed", {"older_than": 60, "dry": True}, "ValueError: no", True],
        ["failed-2", "failed", {"older_than": 5}, "ValueError: ['no', 2]", True],
    ]
    left = "from django_celery_results.models import TaskResult\nprint(TaskResult.objects.count())"
    assert project.python(left).strip() == "3"
