"""The page of an ordinary day: its module is served by a real worker, and every command runs in a real shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT, Block, blocks_of
from terminal import Terminal

import qbull
from conftest import eventually
from qbull.store.store import Store

PAGE = ROOT / "docs/howto/ordinary_day.md"
FAILING = (
    """qbull enqueue email confirm '{"order": "lost"}' --id confirm-lost --wait 30s""",
    "qbull run-job email confirm-lost -A shop:app",
)


def steps() -> Iterator[tuple[str, str]]:
    """The commands of each block, and the output that the page shows for them."""
    blocks = [block for block in blocks_of(PAGE) if "qbull worker" not in block.text]
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "sh":
            yield block.text, following.text if shows_output(following) else ""


def shows_output(block: Block | None) -> bool:
    return block is not None and block.language == "text"


def pattern(shown: str) -> re.Pattern[str]:
    """The output as a pattern: … stands for anything."""
    return re.compile(".*".join(re.escape(part) for part in shown.strip().split("…")), re.DOTALL)


@pytest.mark.timeout(300)
async def test_every_command_of_the_day_does_what_the_page_shows(
    store: Store, server_url: str, tmp_path: Path
) -> None:
    [module] = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    (tmp_path / "shop.py").write_text(module)
    terminal = Terminal(tmp_path, server_url, FAILING)
    worker = await terminal.start("exec qbull worker shop:app >worker.log 2>&1")
    try:
        await eventually(lambda: is_serving(store), within=60)
        seen = 0
        for commands, shown in steps():
            if commands.startswith("qbull slow"):
                await eventually(lambda: has_reported(terminal, "load"), within=60)
            out = await terminal.types(commands)
            assert pattern(shown).search(out), f"{commands}\ngave:\n{out}\nthe page shows:\n{shown}"
            seen += commands.count("qbull ")
        assert seen > 25
        async with qbull.App(server_url, prefix="test") as app:
            email = app.queue("email")
            done = email.job("confirm-o-3")
            await eventually(lambda: is_completed(done), within=60)
            assert await email.job("confirm-lost").result(timeout=60) == "found: Thank you!"
            assert await email.job("confirm-o-2").result(timeout=60) == "o-2: See you soon!"
    finally:
        worker.terminate()
        await worker.wait()


async def has_reported(terminal: Terminal, task: str) -> bool:
    """Whether the run times of a task have arrived: workers send theirs every few seconds."""
    return task in await terminal.types("qbull slow")


async def is_serving(store: Store) -> bool:
    return {"email", "imports"} <= {name for one in (await store.workers()).values() for name in one.queues}


async def is_completed(job: qbull.Job[object]) -> bool:
    return await job.state() == "completed"
