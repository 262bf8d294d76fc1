"""From Celery: a Django project runs with other imports. Its layouts are those of Celery's example and of cookiecutter-django.

Everything runs in processes of its own, because settings of Django are there once in a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from topology import COMMON, PASSWORD, Node, wait_for

pytestmark = pytest.mark.timeout(150)

CELERY_MODULE = """
    import os

    from qbull.compat.celery import Celery

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "{settings}")
    app = Celery("proj")
    app.config_from_object("django.conf:settings", namespace="CELERY")
    app.autodiscover_tasks()


    @app.task(bind=True, ignore_result=True)
    def debug_task(self):
        print(f"Request: {{self.request!r}}")
"""
DJANGO_SETTINGS = """
    import os

    SECRET_KEY = "x"
    DEBUG = False
    USE_TZ = True
    TIME_ZONE = "Europe/Berlin"
    INSTALLED_APPS = ["{application}"]
    DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite"}}}}
    DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
    ROOT_URLCONF = "urls"
"""
EXAMPLE_SETTINGS = """
    CELERY_BROKER_URL = os.environ["TEST_BROKER"]
    CELERY_ACCEPT_CONTENT = ["json"]
    CELERY_TASK_SERIALIZER = "json"
"""
COOKIECUTTER_SETTINGS = """
    REDIS_URL = os.environ["TEST_BROKER"]
    CELERY_TIMEZONE = TIME_ZONE
    CELERY_BROKER_URL = REDIS_URL
    CELERY_BROKER_USE_SSL = None
    CELERY_RESULT_BACKEND = REDIS_URL
    CELERY_REDIS_BACKEND_USE_SSL = CELERY_BROKER_USE_SSL
    CELERY_RESULT_EXTENDED = True
    CELERY_RESULT_BACKEND_ALWAYS_RETRY = True
    CELERY_RESULT_BACKEND_MAX_RETRIES = 10
    CELERY_ACCEPT_CONTENT = ["json"]
    CELERY_TASK_SERIALIZER = "json"
    CELERY_RESULT_SERIALIZER = "json"
    CELERY_TASK_TIME_LIMIT = 5 * 60
    CELERY_TASK_SOFT_TIME_LIMIT = 60
    CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
    CELERY_WORKER_SEND_TASK_EVENTS = True
    CELERY_TASK_SEND_SENT_EVENT = True
    CELERY_WORKER_HIJACK_ROOT_LOGGER = False
    CELERY_OF_ANOTHER_PACKAGE = {"some": "thing"}
"""
MODELS = """
    from django.db import models


    class Widget(models.Model):
        name = models.CharField(max_length=140)
"""
TASKS = """
    from django.db import connection

    from {application}.models import Widget

    from qbull.compat.celery import shared_task


    @shared_task
    def rename_widget(widget_id, name):
        was_open = connection.connection is not None
        Widget.objects.filter(id=widget_id).update(name=name)
        return was_open


    @shared_task(bind=True, autoretry_for=(Exception,), retry_kwargs={{"max_retries": 2, "countdown": 0}})
    def error_task(self):
        raise Exception("Test error")
"""
USE = """
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import transaction

    from {application}.models import Widget
    from {application}.tasks import error_task, rename_widget

    call_command("migrate", run_syncdb=True, verbosity=0)
    widget = Widget.objects.create(name="old")
    try:
        with transaction.atomic():
            rename_widget.delay_on_commit(widget.id, "never")
            raise LookupError
    except LookupError:
        pass
    with transaction.atomic():
        rename_widget.delay_on_commit(widget.id, "new")
        rename_widget.apply_async_on_commit((widget.id, "newer"), task_id="renamed")
        queue = rename_widget.app.queues["celery"]
        before = rename_widget.app.run_sync(queue.stats()).total
    after = rename_widget.app.run_sync(queue.stats()).total
    left_open = [rename_widget.app.AsyncResult("renamed").get(timeout=60)]
    left_open += [rename_widget.delay(widget.id, str(n)).get(timeout=60) for n in range(8)]
    failed = error_task.delay()
    failed.get(timeout=60, propagate=False)
    widget.refresh_from_db()
    print(before, after, any(left_open), widget.name, failed.state)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as it is installed for Celery: without an append-only file."""
    node = Node(tmp_path_factory.mktemp("broker"), COMMON)
    node.start()
    wait_for(node.answers)
    yield f"redis://:{PASSWORD}@{node.place}/0"
    node.kill()


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def example(directory: Path) -> tuple[str, str, str]:
    """The layout of Celery's own example."""
    settings = DJANGO_SETTINGS.format(application="demoapp") + EXAMPLE_SETTINGS
    write(
        directory,
        {
            "proj/__init__.py": "from .celery import app as celery_app\n",
            "proj/celery.py": CELERY_MODULE.format(settings="proj.settings"),
            "proj/settings.py": settings,
            "demoapp/__init__.py": "",
            "demoapp/models.py": MODELS,
            "demoapp/tasks.py": TASKS.format(application="demoapp"),
        },
    )
    return "proj.celery:app", "proj.settings", "demoapp"


def cookiecutter(directory: Path) -> tuple[str, str, str]:
    """The layout of cookiecutter-django: settings in a package, tasks beside the users."""
    settings = DJANGO_SETTINGS.format(application="shop.users") + COOKIECUTTER_SETTINGS
    write(
        directory,
        {
            "config/__init__.py": "from .celery_app import app as celery_app\n\n__all__ = ('celery_app',)\n",
            "config/celery_app.py": CELERY_MODULE.format(settings="config.settings.local"),
            "config/settings/__init__.py": "",
            "config/settings/base.py": settings,
            "config/settings/local.py": "from .base import *\n",
            "shop/__init__.py": "",
            "shop/users/__init__.py": "",
            "shop/users/models.py": MODELS,
            "shop/users/tasks.py": TASKS.format(application="shop.users"),
        },
    )
    return "config.celery_app:app", "config.settings.local", "shop.users"


@pytest.mark.parametrize("layout", [example, cookiecutter])
def test_a_django_project_of_celery_runs_with_other_imports(
    layout: object, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, settings, application = layout(tmp_path)  # type: ignore[operator]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("QBULL_URL", "REDIS_URL")
    }
    environment |= {"TEST_BROKER": broker, "QBULL_PREFIX": application.replace(".", "-")}
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "qbull.cli.main", "worker", app, "--concurrency", "1"],
            cwd=tmp_path,
            env=environment,
            stderr=log,
        )
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(USE.format(application=application))],
            cwd=tmp_path,
            env={**environment, "DJANGO_SETTINGS_MODULE": settings, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        worker.terminate()
        worker.wait(30)

    logged = (tmp_path / "worker.log").read_text()
    assert done.returncode == 0, done.stderr + logged
    assert done.stdout.split() == ["0", "2", "False", "7", "FAILURE"]
    assert ("of_another_package" in logged) == (layout is cookiecutter)
    assert ("do not read schedules from a database" in logged) == (layout is cookiecutter)


TEST_OF_A_PROJECT = """
    import django

    django.setup()
    from django.test import override_settings
    from proj.celery import app
    from demoapp.tasks import error_task

    from qbull.compat.celery.result import EagerResult

    with override_settings(CELERY_TASK_ALWAYS_EAGER=True):
        result = error_task.delay()
        print(isinstance(result, EagerResult), result.state)
        with override_settings(CELERY_TASK_EAGER_PROPAGATES=True):
            try:
                error_task.delay()
            except Exception as error:
                print(error)
    print(app.conf.task_always_eager)
    app.conf.task_always_eager = True
    with override_settings(CELERY_TASK_ALWAYS_EAGER=False):
        print(app.conf.task_always_eager)
"""


def test_the_tests_of_a_project_may_run_tasks_at_the_call(tmp_path: Path) -> None:
    """The tests of cookiecutter-django set it with the fixture `settings`, long after the app was made."""
    example(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TEST_OF_A_PROJECT)],
        cwd=tmp_path,
        env={
            **os.environ,
            "TEST_BROKER": "redis://127.0.0.1:1/0",
            "DJANGO_SETTINGS_MODULE": "proj.settings",
            "PYTHONPATH": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines() == ["True FAILURE", "Test error", "False", "True"], done.stderr
