"""examples/web: a shop in FastAPI and one in Flask take an order and send its receipt in the background."""

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
    pytest.mark.timeout(120),
    needs_tool(shutil.which("curl"), "there is no curl here"),
]


@pytest.fixture(name="example")
def prepare(store: Store, server_url: str, tmp_path: Path) -> Iterator[Example]:
    example = Example("web", tmp_path, server_url)
    yield example
    example.close()


async def finished(port: int, id: str) -> Any:
    found = ask(f"http://127.0.0.1:{port}/jobs/{id}")[1]
    return found if found["state"] == "completed" else None


async def test_a_shop_in_fastapi_sends_receipts_in_its_own_process(example: Example) -> None:
    port = free_port()
    example.start("uvicorn fastapi_shop:api", f"--log-level warning --port {port}")
    await eventually(lambda: answers(f"http://127.0.0.1:{port}/docs"), within=60)

    made = example.curl(
        "curl -X POST 'localhost:8000/orders?email=ada@example.org'", port8000=f"localhost:{port}"
    )
    found = await eventually(lambda: finished(port, made["job"]), within=60)

    assert found == {"state": "completed", "result": "receipt for ada@example.org"}


async def test_a_shop_in_flask_has_its_worker_beside_it(example: Example) -> None:
    port = free_port()
    example.start("flask --app flask_shop:create_app run", f"--port {port}")
    example.start("qbull worker flask_shop:app")
    await eventually(lambda: answers(f"http://127.0.0.1:{port}/"), within=60)

    made = example.curl(
        "curl -X POST localhost:5000/orders -d email=ada@example.org", port5000=f"localhost:{port}"
    )
    found = await eventually(lambda: finished(port, made["job"]), within=60)

    assert found == {"state": "completed", "result": "The Shop: receipt for ada@example.org"}
