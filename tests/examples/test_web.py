"""examples/web: a shop in FastAPI and one in Flask take an order and send its receipt in the background."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from conftest import eventually
from qbull.store.store import Store
from topology import free_port

WEB = Path(__file__).parents[2] / "examples" / "web"
PROGRAMS = {
    "fastapi": [["uvicorn", "fastapi_shop:api", "--log-level", "warning", "--port"]],
    "flask": [
        ["flask", "--app", "flask_shop:create_app", "run", "--port"],
        ["qbull.cli.main", "worker", "flask_shop:app"],
    ],
}
RESULTS = {"fastapi": "receipt for ada", "flask": "The Shop: receipt for ada"}


def ask(port: int, path: str, form: bytes | None = None) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", form, timeout=10) as answer:
        return json.load(answer)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
async def test_an_order_gets_its_receipt(server_url: str, store: Store, name: str, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        started = [
            subprocess.Popen(
                [sys.executable, "-m", *command, *([str(port)] if command[-1] == "--port" else [])],
                cwd=WEB,
                env={**os.environ, "QBULL_URL": server_url, "QBULL_PREFIX": "test"},
                stdout=log,
                stderr=log,
            )
            for command in PROGRAMS[name]
        ]
    try:
        made = await eventually(lambda: order(port))
        found = await eventually(lambda: finished(port, made["job"]))
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)

    assert found == {"state": "completed", "result": RESULTS[name]}


async def order(port: int) -> Any:
    try:
        return ask(port, "/orders?email=ada", b"email=ada")
    except OSError:
        return None


async def finished(port: int, id: str) -> Any:
    found = ask(port, f"/jobs/{id}")
    return found if found["state"] == "completed" else None
