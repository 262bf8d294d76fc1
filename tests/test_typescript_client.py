"""The TypeScript client: it compiles, agrees with the API's shapes and with Python, and speaks to a real server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from web import OPERATOR, opened

import qbull
from needed_tools import needs_tool
from qbull.store.store import Store

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "clients" / "typescript"
TSC = ROOT / "ui" / "node_modules" / ".bin" / "tsc"
pytestmark = needs_tool(
    shutil.which("node") and TSC.exists(),
    "Node is not installed, so no TypeScript is compiled",
)
KEY = some.text(some.characters(codec="utf-8"), min_size=1, max_size=80)


@pytest.fixture(name="client", scope="module")
def build_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled package."""
    made = tmp_path_factory.mktemp("client")
    (made / "package.json").write_text('{"type": "module"}')
    done = _run(str(TSC), "-p", str(CLIENT), "--outDir", str(made / "dist"))
    assert done.returncode == 0, done.stdout
    return made / "dist" / "index.js"


def _run(*command: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_shapes_of_the_client_are_those_of_the_api() -> None:
    made = _run(sys.executable, str(ROOT / "ui" / "wire.py")).stdout

    assert (CLIENT / "src" / "wire.ts").read_text() == made, (
        "the API has changed: run .venv/bin/python ui/wire.py > clients/typescript/src/wire.ts"
    )


def test_a_wrong_call_does_not_compile(tmp_path: Path) -> None:
    options = json.loads((CLIENT / "tsconfig.json").read_text())
    options["compilerOptions"] |= {"rootDir": str(CLIENT), "noEmit": True}
    options["include"] = [str(CLIENT / "src"), str(CLIENT / "test" / "types.ts")]
    (tmp_path / "tsconfig.json").write_text(json.dumps(options))

    done = _run(str(TSC), "-p", str(tmp_path))

    assert (done.returncode, done.stdout) == (0, "")


def partitions_in_node(client: Path, calls: list[Any]) -> list[int]:
    script = str(CLIENT / "test" / "partitions.mjs")
    done = _run("node", script, stdin=json.dumps(calls), QBULL_CLIENT=str(client))
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)
    return found


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=some.lists(some.tuples(KEY, some.integers(1, 4096)), min_size=150, max_size=400))
def test_both_languages_agree_on_the_partition_of_any_key(client: Path, calls: list[tuple[str, int]]) -> None:
    assert partitions_in_node(client, calls) == [qbull.partition_of(*call) for call in calls]


def test_the_partition_of_a_key_is_the_one_that_its_job_goes_to(client: Path) -> None:
    keys = ["+54 9 11 5555", "añn", "🌍", "e\u0301", "\x00", "x" * 1000, "\U0010ffff", *map(str, range(2000))]
    calls = [(key, partitions) for key in keys for partitions in (1, 7, 16)]

    assert partitions_in_node(client, calls) == [qbull.partition_of(*call) for call in calls]
    with pytest.raises(qbull.ArgumentsError, match="give a text that is not empty"):
        qbull.partition_of("", 4)
    with pytest.raises(qbull.ArgumentsError, match="partitions=0: give a whole number from 1"):
        qbull.partition_of("ann", 0)


async def test_a_job_is_in_the_partition_that_its_key_names(server_url: str, store: Store) -> None:
    app = qbull.App(server_url, prefix="test")
    chats = app.queue("chats", partitions=7, order="key")

    @chats.task(key="{phone}")
    async def handle(phone: str) -> None: ...

    for phone in ("+1", "añn", "🌍"):
        info = await (await handle.enqueue(phone)).info()
        assert info is not None
        assert info.partition == qbull.partition_of(phone, 7)
    await app.close()


async def test_the_client_enqueues_waits_and_follows_events(
    client: Path, server_url: str, store: Store
) -> None:
    app = qbull.App(server_url, prefix="test")
    email = app.queue("email", retry=qbull.Retry(attempts=1))

    @email.task
    async def welcome(to: str) -> str:
        if not to:
            raise qbull.Fail("there is nobody to write to")
        return f"welcome, {to}"

    async with app, opened(app) as web, app.worker():
        process = await asyncio.create_subprocess_exec(
            "node", "--test", str(CLIENT / "test" / "client.test.mjs"),
            env={**os.environ, "QBULL_CLIENT": str(client), "QBULL_API": web.url, "QBULL_TOKEN": OPERATOR},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()

    assert process.returncode == 0, out.decode()
    assert "# pass 6" in out.decode()
