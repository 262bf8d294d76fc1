"""Django: tasks of Django's own, and jobs that are enqueued when a transaction is committed.

Everything runs in processes of its own, because settings of Django are there once in a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from qbull.store.store import Store

SHOP = Path(__file__).parents[2] / "examples" / "django_shop"
pytestmark = pytest.mark.timeout(90)


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=SHOP,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": str(SHOP), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_project_tests_its_jobs_inline_and_on_a_real_server() -> None:
    said = run("manage.py", "test", SHOP_DB=":memory:")

    assert "Ran 8 tests" in said
    assert "OK" in said


ENQUEUE = """
    import django
    django.setup()
    from django.core.management import call_command
    from django.db import transaction
    from shop.models import Order
    from shop.tasks import send_receipt

    call_command("migrate", verbosity=0)
    with transaction.atomic():
        order = Order.objects.create(email="ada@example.org")
        result = send_receipt.enqueue(order.id)
    print(result.id)
"""
LOOK = """
    import sys, time, django
    django.setup()
    from shop.models import Order
    from shop.tasks import send_receipt

    result = send_receipt.get_result(sys.argv[1])
    while not result.is_finished:
        time.sleep(0.02)
        result.refresh()
    print(result.status, result.return_value, Order.objects.get().status, len(result.worker_ids))
"""


async def test_a_worker_in_a_process_of_its_own_runs_tasks_of_django(
    server_url: str, store: Store, tmp_path: Path
) -> None:
    shared = {"QBULL_URL": server_url, "QBULL_PREFIX": "test", "SHOP_DB": str(tmp_path / "db")}
    id = run("-c", textwrap.dedent(ENQUEUE), **shared).strip()
    worker = subprocess.Popen(
        [sys.executable, "-m", "qbull.cli.main", "worker", "qbull.contrib.django.worker:app"],
        cwd=SHOP,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "shop.settings", **shared},
        stderr=subprocess.DEVNULL,
    )
    try:
        said = run("-c", textwrap.dedent(LOOK), id, **shared)
    finally:
        worker.terminate()
        worker.wait(30)

    assert said.strip() == "SUCCESSFUL receipt for ada@example.org receipt sent 1"


OUTBOX = """
    import sys
    from urllib.parse import urlsplit

    import django
    from django.conf import settings

    url = urlsplit(sys.argv[1])
    settings.configure(
        USE_TZ=True,
        INSTALLED_APPS=["django_tasks"],
        DATABASES={"default": {
            "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
            "PASSWORD": url.password or "", "HOST": url.hostname, "PORT": url.port,
        }},
        TASKS={"default": {
            "BACKEND": "qbull.contrib.django.tasks.QbullBackend",
            "OPTIONS": {"url": "redis://127.0.0.1:1/0", "transaction": "outbox", "database": sys.argv[1]},
        }},
    )
    django.setup()
    from django.db import connection, transaction
    from outbox_tasks import add

    with transaction.atomic():
        add.enqueue(1, 2)
    try:
        with transaction.atomic():
            add.enqueue(3, 4)
            raise LookupError
    except LookupError:
        pass
    with connection.cursor() as cursor:
        cursor.execute("SELECT task, payload::text FROM qbull_outbox")
        print(cursor.fetchall())
"""


def test_a_task_can_be_a_row_of_the_outbox(database: str, tmp_path: Path) -> None:
    (tmp_path / "outbox_tasks.py").write_text(
        "from django_tasks import task\n\n@task\ndef add(a, b):\n    return a + b\n"
    )
    said = run("-c", textwrap.dedent(OUTBOX), database, PYTHONPATH=str(tmp_path))

    assert said.replace(" ", "").strip() == """[('outbox_tasks.add','{"args":[1,2],"kwargs":{}}')]"""


ENCRYPTED = """
    import django
    from django.conf import settings

    settings.configure(
        USE_TZ=True,
        INSTALLED_APPS=["django_tasks"],
        TASKS={"default": {
            "BACKEND": "qbull.contrib.django.tasks.QbullBackend", "OPTIONS": {"app": "encrypted_tasks:app"},
        }},
    )
    django.setup()
    from encrypted_tasks import add, app

    from qbull import testing

    with testing.embedded(app) as server:
        result = add.enqueue("a" * 50, b="b" * 50)
        server.run_due_sync()
        result.refresh()
        found = add.get_result(result.id)
        print(found.args[0] + found.kwargs["b"] == result.return_value, result.attempts)
"""
ENCRYPTED_TASKS = """
    import sys

    import qbull
    from django_tasks import task

    app = qbull.App(
        "redis://127.0.0.1:1/0",
        results=qbull.FileResults(__file__ + ".results", over=10),
        middleware=[qbull.Encrypted([qbull.Encrypted.new_key()])],
    )

    @task
    def add(a, b):
        return a + b
"""


def test_arguments_and_results_may_be_encrypted_and_kept_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "encrypted_tasks.py").write_text(textwrap.dedent(ENCRYPTED_TASKS))

    said = run("-c", textwrap.dedent(ENCRYPTED), PYTHONPATH=str(tmp_path))

    assert said.strip() == "True 1"


AS_DJANGO = """
    import asyncio

    import django
    from django.conf import settings

    settings.configure(
        USE_TZ=True,
        INSTALLED_APPS=["django_tasks"],
        TASKS={"default": {
            "BACKEND": "qbull.contrib.django.tasks.QbullBackend",
            "QUEUES": [],
            "OPTIONS": {"app": "django_like_tasks:app"},
        }},
    )
    django.setup()
    from django_like_tasks import add, app, leave, odd
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_finished

    from qbull import testing

    ends = []

    def note(sender, task_result, **_):
        ends.append(f"{task_result.task.name} {task_result.status}")

    task_finished.connect(note)

    async def in_a_loop(result):
        same = add.get_result(result.id) == result
        other = add.enqueue(3, 4)
        await other.arefresh()
        try:
            add.get_result("123")
        except TaskResultDoesNotExist:
            return same, other.status

    with testing.embedded(app) as server:
        result = add.using(queue_name="mail").enqueue(1, 2)
        print("equal", add.get_result(result.id) == result)
        print("loop", *asyncio.run(in_a_loop(add.enqueue(5, 6))))
        odd.enqueue()
        leave.enqueue()
        server.run_due_sync()
        result.refresh()
        print("mail", result.status, result.return_value)
        print("ends", *sorted(ends))
        for failed in (odd, leave):
            found = failed.enqueue()
            server.run_due_sync()
            found.refresh()
            print(failed.name, found.status, found.errors[0].exception_class.__name__)
"""
DJANGO_LIKE_TASKS = """
    import sys

    import qbull
    from django_tasks import task

    app = qbull.App("redis://127.0.0.1:1/0")

    @task
    def add(a, b):
        return a + b

    @task
    def odd():
        return object()

    @task
    def leave():
        sys.exit("bye")
"""


def test_results_and_signals_are_those_of_the_backends_of_django(tmp_path: Path) -> None:
    (tmp_path / "django_like_tasks.py").write_text(textwrap.dedent(DJANGO_LIKE_TASKS))

    said = run("-c", textwrap.dedent(AS_DJANGO), PYTHONPATH=str(tmp_path)).splitlines()

    facts = ("equal ", "loop ", "mail ", "ends ", "odd ", "leave ")
    assert [line for line in said if line.startswith(facts)] == [
        "equal True",
        "loop True READY",
        "mail SUCCESSFUL 3",
        "ends add SUCCESSFUL add SUCCESSFUL add SUCCESSFUL leave FAILED odd FAILED",
        "odd FAILED TypeError",
        "leave FAILED SystemExit",
    ]


BROKEN = """
    import asyncio
    import sys
    from urllib.parse import urlsplit

    import django
    import psycopg
    from asgiref.sync import sync_to_async
    from django.conf import settings

    url = urlsplit(sys.argv[1])
    settings.configure(
        DATABASES={"default": {
            "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
            "PASSWORD": url.password or "", "HOST": url.hostname, "PORT": url.port,
        }},
    )
    django.setup()
    from django.db import connection

    import qbull
    from qbull import testing
    from qbull.contrib.django import DjangoConnections

    app = qbull.App("redis://127.0.0.1:1/0", middleware=[DjangoConnections()])

    def pid() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return cursor.fetchone()[0]

    @app.queue("work", retry=qbull.Retry(attempts=1)).task
    async def ask() -> int:
        return await sync_to_async(pid)()

    async def main() -> None:
        async with testing.embedded(app) as server:
            jobs = []
            for _ in range(4):
                jobs.append(await ask.enqueue())
                await server.run_due()
                if len(jobs) == 2:
                    with psycopg.connect(sys.argv[1]) as other:
                        other.execute("SELECT pg_terminate_backend(%s, 10000)", [await jobs[0].result()])
            kept = await jobs[0].result() == await jobs[1].result()
            print(kept, *[await job.state() for job in jobs])

    asyncio.run(main())
"""


def test_an_asynchronous_task_does_not_use_a_connection_that_has_broken_again(database: str) -> None:
    said = run("-c", textwrap.dedent(BROKEN), database)

    assert said.splitlines()[0] == "True completed completed failed completed"


def test_wrong_settings_are_said_in_one_line() -> None:
    said = run("-c", textwrap.dedent(WRONG)).splitlines()

    assert [line.partition(": ")[2] for line in said] == [
        'transaction=\'later\': use None, "on_commit" or "outbox"',
        'app="json:loads": is no qbull.App; give "module:app"',
        "OPTIONS has url; it may have transaction, and either app or url, prefix, database, durability",
    ]


WRONG = """
    from django.conf import settings
    settings.configure()
    from qbull.contrib.django.tasks import QbullBackend

    for options in ({"transaction": "later"}, {"app": "json:loads"}, {"app": "a:b", "url": "x"}):
        try:
            QbullBackend("default", {"OPTIONS": options})
        except Exception as error:
            print(error)
"""
