"""The blocks of docs/guides/django.md run, in a small project and in a process of its own: Django's settings are there once in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pages import DOCS, blocks_of

from qbull.store.store import Store

JOBS = """
import qbull

app = qbull.App()
mail = app.queue("mail")


@mail.task
def send_receipt(order_id: int) -> None: ...
"""
MODELS = """
from django.db import models


class Order(models.Model):
    email = models.CharField(max_length=200)

    class Meta:
        app_label = "shop"
"""
PLAY = """
import asyncio, json, os, sys
from urllib.parse import urlsplit

import django
from django.conf import settings

view, asynchronous_view, enqueue, connections, tasks = json.load(sys.stdin)
url = urlsplit(os.environ["QBULL_DATABASE_URL"])
named = {}
exec(compile(tasks, "docs/guides/django.md", "exec"), named)
settings.configure(
    USE_TZ=True,
    INSTALLED_APPS=["shop", "django_tasks"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
        "PASSWORD": url.password or "", "HOST": url.hostname, "PORT": url.port,
    }},
    TASKS=named["TASKS"],
)
django.setup()
from django.db import connection
from django.test import RequestFactory
from django.utils.module_loading import import_string
from shop.jobs import app
from shop.models import Order

import_string(named["TASKS"]["default"]["BACKEND"])
with connection.schema_editor() as editor:
    editor.create_model(Order)
exec(compile(connections, "docs/guides/django.md", "exec"), {})
for text in (view, asynchronous_view):
    exec(compile(text, "docs/guides/django.md", "exec"), named := {**named, "Order": Order})
request = RequestFactory().post("/orders", {"email": "ada@example.org"})
assert named["place_order"](request).status_code == 202


async def ask():
    assert (await named["place_order_async"](request)).status_code == 202
    await app.close()


asyncio.run(ask())
exec(compile(enqueue, "docs/guides/django.md", "exec"), {"Order": Order})
with connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM qbull_outbox")
    rows = cursor.fetchone()[0]
stats = app.run_sync(app.queues["mail"].stats())
print(stats.waiting, stats.delayed, rows)
app.close_sync()
connection.close()
"""


async def test_the_blocks_of_the_page_run(
    server_url: str, store: Store, database: str, tmp_path: Path
) -> None:
    blocks = [block.text for block in blocks_of(DOCS / "guides" / "django.md") if block.language == "python"]
    project = tmp_path / "shop"
    project.mkdir()
    for name, text in {"__init__": "", "jobs": JOBS, "models": MODELS}.items():
        (project / f"{name}.py").write_text(text)

    done = subprocess.run(
        [sys.executable, "-c", PLAY],
        cwd=tmp_path,
        env={**os.environ, "QBULL_URL": server_url, "QBULL_PREFIX": "test", "QBULL_DATABASE_URL": database},
        input=json.dumps(blocks),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    # From two views and at the commit, in a minute, in the outbox.
    assert done.stdout.split() == ["3", "1", "1"]
