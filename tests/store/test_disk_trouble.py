"""A server that cannot write to its disk is named as such: it is there, and making room helps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import qbull
from conftest import eventually
from qbull.store.connection.unavailable import unavailable_fact
from topology import COMMON, PASSWORD, Node, wait_for


async def test_a_server_that_cannot_save_says_so_in_one_line(tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    node = Node(tmp_path / "server", f'{COMMON}appendonly no\nsave "3600 1"\ndir {lost}\n')
    node.start()
    wait_for(node.answers)
    shutil.rmtree(lost)
    try:
        async with qbull.App(f"redis://:{PASSWORD}@127.0.0.1:{node.port}/0", prefix="test") as app:

            @app.queue("email").task
            async def send() -> None: ...

            await send.enqueue()
            node.tell("BGSAVE")
            await eventually(lambda: has_failed_to_save(node))
            with pytest.raises(qbull.ServerError) as refused:
                await send.enqueue()
    finally:
        node.kill()

    said = str(refused.value)
    assert "cannot write to its disk and accepts no changes; free space on that disk" in said
    assert "cannot be reached" not in said and "\n" not in said


async def has_failed_to_save(node: Node) -> bool:
    return bool(node.info("persistence")["rdb_last_bgsave_status"] == "err")


def test_the_reason_of_the_system_is_a_part_of_the_line() -> None:
    said = unavailable_fact("MISCONF Errors writing to the AOF file: No space left on device")

    assert said.startswith("cannot write to its disk (No space left on device) and accepts no changes; ")
