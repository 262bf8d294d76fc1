"""examples/django_shop: Django's own tasks and qbull's, enqueued when the order is committed; tested, migrated, served and worked as its page says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playing import Example, answers, ask

from conftest import eventually
from needed_tools import needs_tool
from qbull.store.store import Store
from topology import free_port

pytestmark = [
    pytest.mark.timeout(180),
    needs_tool(shutil.which("curl"), "there is no curl here"),
]


@pytest.fixture(name="example")
def prepare(store: Store, server_url: str, tmp_path: Path) -> Iterator[Example]:
    example = Example("django_shop", tmp_path, server_url)
    yield example
    example.close()


def test_its_tests_need_no_server(example: Example) -> None:
    del example.environment["QBULL_URL"]

    example.run("python manage.py test")


async def test_an_order_gets_its_receipt(example: Example) -> None:
    port = free_port()
    example.start("python manage.py migrate && python manage.py runserver", f"--noreload {port}")
    example.start("DJANGO_SETTINGS_MODULE=shop.settings qbull worker qbull.contrib.django.worker:app")
    await eventually(lambda: answers(f"http://127.0.0.1:{port}/"), within=60)

    made = example.curl(
        "curl -X POST localhost:8000/orders -d email=ada@example.org", port8000=f"localhost:{port}"
    )

    async def finished() -> Any:
        found = ask(f"http://127.0.0.1:{port}/results/{made['result']}")[1]
        return found if found["value"] else None

    found = await eventually(finished, within=60)
    assert found == {"status": "SUCCESSFUL", "value": "receipt for ada@example.org"}
