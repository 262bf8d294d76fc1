"""`qbull check-celery`: a project is read, never run, and each use of Celery is told with file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from qbull.cli.check_celery.check import check_celery_project
from qbull.cli.check_celery.command import check_celery
from qbull.cli.check_celery.report import CheckReport
from qbull.compat.celery.call_options import CALL_OPTIONS, CALLBACK_OPTIONS, call_option_support
from qbull.compat.celery.conf import CELERY_DEFAULTS, setting_support
from qbull.compat.celery.names import name_support
from qbull.compat.celery.task_classes import TASK_OPTION_NAMES
from qbull.compat.celery.task_options import task_option_support

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "from_celery.md"
APP = "from celery import Celery\napp = Celery('shop')\n"


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., CheckReport]:
    """Write files and check them. Importing one of them would fail."""

    def write(**files: str) -> CheckReport:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text) + "\nraise SystemExit('this module was imported')\n")
        return check_celery_project(tmp_path)

    return write


def must_change(report: CheckReport) -> list[tuple[str, str, int]]:
    return [(each.what, each.file, each.line) for each in report.of_level("refused")]


def used(report: CheckReport) -> set[str]:
    return {each.what for each in report.findings}


def test_a_refused_option_is_told_with_file_line_and_replacement(check: Callable[..., CheckReport]) -> None:
    report = check(tasks=APP + "@app.task(\n    bind=True,\n    rate_limit='10/m',\n)\ndef add(self, x): ...")

    [found] = report.of_level("refused")
    assert (found.what, found.file, found.line) == ("@app.task(rate_limit=…)", "tasks.py", 5)
    assert "qbull.Rate(100, per=60)" in found.note
    assert (len(report.tasks), report.accepted, report.share) == (1, 0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "from celery import shared_task\n@shared_task\ndef a(): ...",
        "from celery import shared_task as job\n@job(acks_late=True)\nasync def a(): ...",
        "import celery\n@celery.shared_task(name='a')\ndef a(): ...",
        "from celery import Celery\ncelery = Celery()\n@celery.task\ndef a(): ...",
        "from celery.app import Celery\ndef make():\n    return Celery()\nx = make()\n@x.task()\ndef a(): ...",
        "from celery import current_app\n@current_app.task\ndef a(): ...",
        "from shop.worker import app\n@app.task(queue='q')\ndef a(): ...",
        "from ..worker import app as one\n@one.task\ndef a(): ...",
        "from celery import Task\nclass A(Task):\n    def run(self): ...",
        "from shop.worker import Own\nclass A(Own):\n    max_retries = 3\n    def run(self): ...",
        "from qbull.compat.celery import shared_task\n@shared_task\ndef a(): ...",
    ],
)
def test_a_task_is_found_however_it_is_declared(check: Callable[..., CheckReport], text: str) -> None:
    worker = APP + "from celery import Task\nclass Own(Task):\n    abstract = True"
    report = check(shop__worker=worker, shop__parcels__tasks=text)

    assert [(task.file, task.accepted) for task in report.tasks] == [("shop/parcels/tasks.py", True)]
    assert not report.of_level("refused")


def test_decorators_of_other_libraries_are_no_tasks(check: Callable[..., CheckReport]) -> None:
    report = check(
        tasks="from huey import app\nimport invoke\n@app.task\ndef a(): ...\n@invoke.task\ndef b(): ..."
    )

    assert (report.tasks, report.findings) == ([], [])


def test_calls_retries_and_the_request_are_checked(check: Callable[..., CheckReport]) -> None:
    report = check(
        tasks=APP
        + """
@app.task(bind=True)
def add(self, x):
    add.apply_async((1,), countdown=3, shadow="sum")
    add.s(1).set(queue="mail", routing_key="k")
    self.request.retries, self.request.root_id
    self.add_to_chord(add.s(2))
    raise self.replace(add.s(2))
    app.control.inspect()
    app.control.revoke("id", terminate=True)
    raise self.retry(exc=None, kwargs={})
"""
    )

    assert [what for what, _, _ in must_change(report)] == [
        "apply_async(shadow=…)",
        "set(routing_key=…)",
        "self.request.root_id",
        "self.add_to_chord",
        "app.control.inspect",
        "self.retry(kwargs=…)",
    ]
    works = {"apply_async(countdown=…)", "set(queue=…)", "self.request.retries", "app.control.revoke"}
    assert works <= {each.what for each in report.of_level("works")}
    assert report.share == 1, "the task is accepted as declared"


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ({"app": APP + "app.conf.task_annotations = {'*': {}}"}, "conf.task_annotations"),
        ({"app": APP + "app.conf['task_acks_late'] = False"}, "conf.task_acks_late"),
        ({"app": APP + "app.conf.update(timezone='UTC', task_serializer='pickle')"}, "conf.task_serializer"),
        ({"app": APP + "app.conf.update({'result_backend': 'db+sqlite:///x'})"}, "conf.result_backend"),
        ({"app": "import celery\nx = celery.Celery('x', broker='amqp://guest@rabbit')"}, "conf.broker_url"),
        (
            {
                "app": APP + "app.config_from_object('django.conf:settings', namespace='CELERY')",
                "shop__settings": "import os\nif os.name:\n    CELERY_BROKER_USE_SSL = {'ssl': 1}\nOTHER = 1",
            },
            "conf.broker_use_ssl",
        ),
        (
            {
                "app": APP + "app.config_from_object('shop.celeryconfig')",
                "shop__celeryconfig": "CELERY_ACKS_LATE = False\ntimezone = 'UTC'",
            },
            "conf.task_acks_late",
        ),
        ({"config": "class CeleryConfig:\n    task_annotations = {'*': 1}"}, "conf.task_annotations"),
        (
            {
                "app": APP
                + "app.conf.beat_schedule = {'a': {'task': 't', 'schedule': 3, 'options': {'priority': 3}}}"
            },
            "beat_schedule: options: priority",
        ),
        (
            {"app": "from celery.schedules import crontab\ncrontab(day_of_week=1, day_of_month=1)"},
            "crontab(day_of_week=…, day_of_month=…)",
        ),
    ],
)
def test_settings_are_read_wherever_they_are(
    check: Callable[..., CheckReport], files: dict[str, str], refused: str
) -> None:
    report = check(**files)

    assert [what for what, _, _ in must_change(report)] == [refused]


def test_a_change_of_the_request_must_change(check: Callable[..., CheckReport]) -> None:
    body = "    self.request.chain = None\n    self.request.tenant = 3\n    return self.request.id"
    report = check(tasks=APP + "@app.task(bind=True)\ndef stop(self):\n" + body)

    found = [(each.what, each.note.partition(";")[0]) for each in report.of_level("refused")]
    assert found == [
        ("self.request.chain = …", "a chain that has started is fixed"),
        ("self.request.tenant = …", "the request cannot be changed"),
    ]


def test_an_option_that_looks_like_another_one_must_change(check: Callable[..., CheckReport]) -> None:
    report = check(tasks=APP + "@app.task(ignore_results=True, tariff='night')\ndef a(): ...")

    [found] = report.of_level("refused")
    assert found.note == "there is no such option; did you mean ignore_result?"


def test_settings_that_have_no_effect_are_differences(check: Callable[..., CheckReport]) -> None:
    report = check(app=APP + "app.conf.worker_prefetch_multiplier = 1\napp.conf.broker_pool_limit = None")

    [found] = report.of_level("differs")
    assert (found.what, found.line) == ("conf.worker_prefetch_multiplier", 3)
    assert "conf.broker_pool_limit" in {each.what for each in report.of_level("works")}


def test_imports_without_a_counterpart_must_change(check: Callable[..., CheckReport]) -> None:
    report = check(
        app="""
        from celery import chain, states, signals
        from celery.exceptions import Reject
        from celery.signals import task_prerun, task_unknown
        from celery.utils.log import get_task_logger
        from django_celery_beat.models import PeriodicTask
        from kombu import Queue
        import celery
        signals.task_postrun, celery.signals.beat_init, celery.chord
        """
    )

    assert must_change(report) == [
        ("celery.exceptions.Reject", "app.py", 3),
        ("celery.signals.task_unknown", "app.py", 4),
        ("django_celery_beat.models.PeriodicTask", "app.py", 6),
        ("celery.signals.beat_init", "app.py", 9),
    ]


def test_tests_and_other_peoples_code_are_left_out(tmp_path: Path, check: Callable[..., CheckReport]) -> None:
    bad = APP + "app.conf.task_annotations = 1"
    report = check(shop__tests__test_a=bad, node_modules__x=bad, conftest=bad, shop__tasks=APP)

    assert (report.files, report.skipped_tests, report.of_level("refused")) == (1, 2, [])
    assert len(check_celery_project(tmp_path, include_tests=True).of_level("refused")) == 2


def test_the_command_prints_a_summary_and_ends_with_a_code_for_ci(
    tmp_path: Path, check: Callable[..., CheckReport]
) -> None:
    check(tasks=APP + "@app.task(throws=(OSError,))\ndef add(x): ...")
    fine = CliRunner().invoke(check_celery, [str(tmp_path)])
    check(more=APP + "@app.task(rate_limit='3/s')\ndef add(x): ...")
    bad = CliRunner().invoke(check_celery, [str(tmp_path)])
    as_json = CliRunner().invoke(check_celery, [str(tmp_path), "--json"])

    assert fine.exit_code == 0, fine.output
    assert "tasks.py:3: @app.task(throws=…): has no effect" in fine.output
    assert "1 tasks, 1 accepted as declared (100.0%)" in fine.output
    assert bad.exit_code == as_json.exit_code == 1
    assert "more.py:3: @app.task(rate_limit=…): rate limits belong to a queue" in bad.output
    told = json.loads(as_json.output)
    assert (told["tasks"], told["accepted"], told["share"]) == (2, 1, 0.5)
    assert [(each["file"], each["line"]) for each in told["must_change"]] == [("more.py", 3)]


def test_a_file_that_cannot_be_parsed_is_named(tmp_path: Path, check: Callable[..., CheckReport]) -> None:
    report = check(tasks="from celery import {{ name }}", more=APP)
    ended = CliRunner().invoke(check_celery, [str(tmp_path)])

    assert (report.files, report.unreadable) == (1, ["tasks.py"])
    assert "cannot parse them\ntasks.py\n" in ended.output


def test_the_syntax_of_a_newer_python_is_read(check: Callable[..., CheckReport]) -> None:
    report = check(
        tasks=APP + "@app.task\ndef a():\n    try: ...\n    except OSError, ValueError:\n        pass"
    )

    assert (len(report.tasks), report.unreadable) == (1, [])


def test_a_package_is_checked_by_itself(tmp_path: Path, check: Callable[..., CheckReport]) -> None:
    check(shop__worker=APP, shop__tasks="from shop.worker import app\n@app.task\ndef a(): ...")
    (tmp_path / "shop" / "__init__.py").touch()

    assert len(check_celery_project(tmp_path / "shop").tasks) == 1


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    ended = CliRunner().invoke(check_celery, [str(tmp_path / "nowhere")])

    assert "there is no such file or directory" in str(ended.exception)


def _row(first: str) -> str:
    [row] = [line for line in GUIDE.read_text().splitlines() if line.startswith(f"| {first} |")]
    return row


def test_the_guide_lists_the_options_and_settings_that_the_shim_keeps() -> None:
    options = {name for name in TASK_OPTION_NAMES if task_option_support(name).level == "works"}
    settings = {name for name in CELERY_DEFAULTS if setting_support(name).level == "works"}

    calls = [
        name for name in (*CALL_OPTIONS, *CALLBACK_OPTIONS) if call_option_support(name).level == "works"
    ]
    fixed = {"shared", "lazy", "reject_on_worker_lost", "track_started", "store_errors_even_if_ignored"}
    for name in options - fixed - {"serializer"}:
        assert f"`{name}" in _row("`@app.task`, `@shared_task`"), name
    for name in calls:
        assert f"`{name}`" in _row("`apply_async`, `apply_async_on_commit`, `delay_on_commit`"), name
    for name in settings - {"task_default_retry_delay"}:
        assert f"`{name}`" in _row("`conf`"), name


@pytest.mark.parametrize(
    "name", ["result", "schedules", "signals", "states", "utils.log", "exceptions", "canvas"]
)
def test_each_module_that_programs_import_has_the_same_path(name: str) -> None:
    assert name_support(f"celery.{name}").level == "works"
