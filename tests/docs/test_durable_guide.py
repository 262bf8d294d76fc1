"""The guide of durable tasks: its module is served by a real worker, and its commands run in a real shell, on real jobs."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator

import pytest
from pages import ROOT, blocks_of
from terminal import Terminal

import qbull
from conftest import eventually
from qbull.store.store import Store

PAGE = ROOT / "docs/guides/durable_tasks.md"
SHOWN_ID = "0199c2f0a1b27000b4a1f3c2d5e6f708"
"""The id of a job in the commands of the page."""
BLOCKS = list(blocks_of(PAGE))


def module_of_the_page() -> str:
    """Everything that the page declares; without the lines that enqueue jobs."""
    declared = []
    for block in BLOCKS:
        if block.language == "python":
            declared += [one for one in ast.parse(block.text).body if not _awaits(one)]
    return ast.unparse(ast.Module(declared, []))


def _awaits(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.AsyncFunctionDef):
        return False
    return any(isinstance(node, ast.Await | ast.AsyncFor) for node in ast.walk(statement))


def command(start: str, id: str = SHOWN_ID) -> str:
    """A command of the page, for the job with this id."""
    [found] = [one.text for one in BLOCKS if one.language == "sh" and start in one.text]
    return found.replace(SHOWN_ID, id)


@pytest.fixture(name="terminal")
async def serve_the_page(
    store: Store, server_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Terminal]:
    """A terminal beside a worker that has every task of the page."""
    directory = tmp_path_factory.mktemp("guide")
    (directory / "tasks.py").write_text(module_of_the_page())
    terminal = Terminal(directory, server_url)
    worker = await terminal.start("exec qbull worker tasks:app >worker.log 2>&1")

    async def is_serving() -> bool:
        return {"orders", "printing"} <= {
            name for one in (await store.workers()).values() for name in one.queues
        }

    try:
        await eventually(is_serving, within=60)
        yield terminal
    finally:
        worker.terminate()
        await worker.wait()


@pytest.mark.timeout(300)
async def test_every_command_of_the_guide_runs_on_a_real_job(terminal: Terminal, server_url: str) -> None:
    async with qbull.App(server_url, prefix="test") as app:
        ran = 0

        async def types(start: str, id: str = SHOWN_ID) -> str:
            nonlocal ran
            ran += 1
            return await terminal.types(command(start, id))

        paid = await app.send("orders", "pay", {"order": 7})
        await types("qbull signal", paid.id)
        assert await paid.result(timeout=30) == "parcel-7"

        prepared = await app.send("orders", "prepare", {"order": 7})
        await prepared.signal("carrier")
        await prepared.result(timeout=30)
        assert "waiting for the carrier" in await types("--published", prepared.id)

        fulfilled = await app.send("orders", "fulfil", {"order": 7})
        assert await fulfilled.result(timeout=30) == "parcel-7"
        printed = await types("--steps", fulfilled.id)
        assert "charge" in printed and "payment-7" in printed and "parcel-7" in printed

        forked = app.queue("orders").job((await types("qbull fork", fulfilled.id)).strip())
        assert await forked.result(timeout=30) == "parcel-7"
        assert [step.result for step in await forked.steps()] == ["voucher-8", "parcel-7"]
        assert "no problems" in await types("qbull doctor")
    assert ran == len([block for block in BLOCKS if block.language == "sh"])


@pytest.mark.timeout(300)
async def test_the_changed_task_of_the_guide_takes_its_new_path(terminal: Terminal, server_url: str) -> None:
    async with qbull.App(server_url, prefix="test") as app:
        job = await app.send("orders", "deliver", {"order": 7})

        assert await job.result(timeout=30) == "parcel-7"
        assert [step.name for step in await job.steps()] == ["charge", "patched weigh first", "weigh", "ship"]
