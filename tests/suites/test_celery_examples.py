"""Celery's own examples run on qbull: of each, the imports and the addresses of the servers are replaced, nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from sdists import CELERY

from qbull.store.store import Store

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not CELERY.is_there, reason="Celery's sdist is not here: python tests/suites/sdists.py fetches it"
    ),
]
WAIT_SECONDS = 60
ADDRESS = re.compile(r"""(["'])(?:amqp|rpc|db\+sqlite)://.*?\1""")


class Example(NamedTuple):
    """An example of Celery: its folder, the app, calls, and what they print."""

    folder: str
    app: str
    calls: str
    prints: str
    setting: str | None = None


EXAMPLES = (
    Example("app", "myapp:app", "from myapp import add; print(add.delay(16, 16).get())", "32\n"),
    Example("tutorial", "tasks:app", "from tasks import add; print(add.delay(4, 4).get())", "8\n"),
    Example(
        "pydantic",
        "tasks:app",
        "from tasks import x; print(x.delay({'value': 7}).get())",
        "{'value': 'example: 7'}\n",
    ),
    Example(
        "next-steps",
        "proj.celery:app",
        "from qbull.compat.celery import chord, group\n"
        "from proj.tasks import add, mul, xsum\n"
        "print(add.delay(2, 2).get(), (add.s(4, 4) | mul.s(8))().get())\n"
        "print(group(add.s(i, i) for i in range(5))().get(), chord((add.s(i, i) for i in range(5)), xsum.s())().get())",
        "4 64\n[0, 2, 4, 6, 8] 20\n",
    ),
    Example(
        "django",
        "proj.celery:app",
        "import django\n"
        "django.setup()\n"
        "from django.core.management import call_command\n"
        "call_command('migrate', verbosity=0)\n"
        "from demoapp import models, tasks\n"
        "widget = models.Widget.objects.create(name='old')\n"
        "print(tasks.add.delay(2, 2).get(), tasks.mul.delay(3, 3).get(), tasks.xsum.delay([1, 2]).get())\n"
        "tasks.rename_widget.delay(widget.id, 'new').get()\n"
        "widget.refresh_from_db()\n"
        "print(tasks.count_widgets.delay().get(), widget.name)\n"
        "failing = tasks.error_backoff_test.delay()\n"
        "while failing.state != 'RETRY': pass\n"
        "print(failing.state)",
        "4 9 3\n1 new\nRETRY\n",
        "proj.settings",
    ),
)


def move(folder: str, to: Path, address: str) -> Path:
    """Copy an example. Imports and addresses change."""
    shutil.copytree(CELERY.directory / "examples" / folder, to)
    for path in to.rglob("*.py"):
        text = path.read_text()
        text = re.sub(r"^from celery\b", "from qbull.compat.celery", text, flags=re.MULTILINE)
        path.write_text(ADDRESS.sub(lambda _: repr(address), text))
    return to


@contextmanager
def worker(app: str, directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "qbull", "worker", app],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=(directory / "worker.log").open("w"),
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def environment_of(example: Example | None = None) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in ("QBULL_URL", "REDIS_URL")}
    own |= {"QBULL_PREFIX": "test", "PYTHONPATH": ".", "PYTHONUNBUFFERED": "1"}
    return own | ({"DJANGO_SETTINGS_MODULE": example.setting} if example and example.setting else {})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.folder)
def test_an_example_of_celery_runs(example: Example, server_url: str, store: Store, tmp_path: Path) -> None:
    directory = move(example.folder, tmp_path / "moved", server_url)
    environment = environment_of(example)

    with worker(example.app, directory, environment):
        done = subprocess.run(
            [sys.executable, "-c", example.calls],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )

    assert done.stdout == example.prints, done.stderr + (directory / "worker.log").read_text()


def test_the_periodic_example_of_celery_says_hello(server_url: str, store: Store, tmp_path: Path) -> None:
    directory = move("periodic-tasks", tmp_path / "moved", server_url)

    with worker("myapp:app", directory, environment_of()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hello\n"


def test_the_stamping_example_of_celery_is_refused_with_the_replacement(
    server_url: str, tmp_path: Path
) -> None:
    directory = move("stamping", tmp_path / "moved", server_url)

    done = subprocess.run(
        [sys.executable, "-c", "import visitors"],
        cwd=directory,
        env=environment_of(),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert done.returncode == 1
    assert "StampingVisitor: give the call headers=…, or set them" in done.stderr.splitlines()[-1]
