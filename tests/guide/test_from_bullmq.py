"""From BullMQ: the code of the page runs, and its producer in Node speaks to the real API."""

from __future__ import annotations

import asyncio
import inspect
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from blocks import Page
from drain_commands import drain_commands
from node_producers import BullQueue, needs_node
from producers import Old, open_old, open_old_server  # noqa: F401 - two are fixtures
from shell import Shell, open_shell  # noqa: F401 - one is a fixture
from web import ADMIN, opened

import qbull
from needed_tools import needs_tool
from qbull.store.store import Store


@pytest.fixture
def page(server_url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv("QBULL_URL", server_url)
    monkeypatch.setenv("QBULL_PREFIX", "test")
    return Page("from_bullmq", tmp_path, server_url)


@pytest.fixture
async def shop(page: Page) -> AsyncIterator[Any]:
    module = page.module("shop", *page.code("The worker"))
    yield module
    await module.app.close()


def node(page: Page, section: str, nth: int) -> str:
    body = page.text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r" *```javascript\n(.*?)```", body, re.DOTALL)[nth]


async def test_the_worker_and_the_producer_of_the_page_run(
    page: Page, shop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    [producer] = page.code("The producer")
    code = compile(producer, "page", "exec", 0x2000)  # PyCF_ALLOW_TOP_LEVEL_AWAIT
    made = eval(code, vars(shop))
    assert inspect.iscoroutine(made)

    await made
    refused = await shop.welcome.enqueue(to="")
    async with shop.app.worker():
        with pytest.raises(qbull.JobFailed, match="there is nobody to write to"):
            await refused.result(timeout=10)
        await shop.app.job("email", "welcome-bob").promote()
        bob = await shop.app.job("email", "welcome-bob").result(timeout=10)
        counts = await shop.email.stats()

    assert bob == "welcome, bob"
    assert (counts.completed, counts.failed) == (4, 1)
    assert f"{refused.id}: there is nobody to write to" in caplog.text
    info = await refused.info()
    assert info is not None and info.attempt == 1


@needs_tool(shutil.which("node"), "Node is not installed")
async def test_a_producer_in_node_needs_no_library(page: Page, shop: Any, tmp_path: Path) -> None:
    (tmp_path / "producer.mjs").write_text(
        node(page, "The producer", 1)
        + """
console.log(await enqueue("email", "welcome", { to: "ann" }, { id: "a", delay: 60, priority: 1 }));
console.log(await enqueue("email", "welcome", { to: "ann" }, { id: "a" }));
await enqueue("email", "welcome", { name: "ann" }).catch((error) => console.log(error.message));
"""
    )

    async with opened(shop.app) as web:
        environment = {
            "QBULL_API": web.url,
            "QBULL_ADMIN_TOKEN": ADMIN,
            "PATH": "/usr/bin:/bin:/usr/local/bin",
        }
        process = await asyncio.create_subprocess_exec(
            str(shutil.which("node")), "producer.mjs", cwd=tmp_path, env=environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
    info = await shop.app.job("email", "a").info()

    assert err == b""
    first, second, wrong = out.decode().splitlines()
    assert (first, second) == ("a", "a")
    assert wrong == "task \"welcome\": got an unexpected keyword argument 'name'; it takes: to"
    assert info is not None
    assert (info.payload, info.priority, info.state) == ({"to": "ann"}, 1, "delayed")
    await shop.app.job("email", "a").remove()


@needs_tool(shutil.which("node"), "Node is not installed")
@pytest.mark.parametrize(("section", "nth"), [("The worker", 0), ("The producer", 0)])
async def test_what_is_written_for_node_is_javascript(
    page: Page, tmp_path: Path, section: str, nth: int
) -> None:
    (tmp_path / "old.mjs").write_text(node(page, section, nth))

    process = await asyncio.create_subprocess_exec(
        str(shutil.which("node")), "--check", "old.mjs", cwd=tmp_path
    )

    assert await process.wait() == 0


@needs_node
def test_the_commands_of_the_page_move_jobs_and_schedules(
    page: Page, shell: Shell, old: Old, store: Store
) -> None:
    (shell.directory / "shop.py").write_text("\n\n".join(page.code("The worker")))
    queue = BullQueue(old, "bullmq")
    queue.run(
        ["add", "welcome", {"to": "ann"}],
        ["add", "welcome", {"to": "bob"}, {"delay": 60000, "jobId": "welcome-bob", "priority": 1}],
        ["schedule", "daily", {"pattern": "0 9 * * *"}, {"name": "welcome", "data": {"to": "all"}}],
    )
    dry_run, move_all, move_some = drain_commands("from_bullmq", old.url)

    dry = shell.ok(*dry_run)
    moved = shell.ok(*move_all)
    queue.run(["add", "greet", {"TO": "cy"}])
    more = shell.ok(*move_some)

    assert "3 can be moved, 0 would stay" in dry
    assert "3 moved, 0 left" in moved
    assert "1 moved, 0 left" in more
    assert shell.json("job", "email", "welcome-bob")["state"] == "delayed"
    assert queue.counts() == {}
