"""From streams and lists: the tasks of the page run, and its commands move real messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from blocks import Page
from drain_commands import drain_commands
from producers import Old, open_old, open_old_server  # noqa: F401 - two are fixtures
from shell import Shell, open_shell, seen  # noqa: F401 - one is a fixture

from qbull.store.store import Store


def test_the_commands_of_the_page_move_what_waits(
    shell: Shell, old: Old, store: Store, server_url: str, tmp_path: Path
) -> None:
    page = Page("from_streams", tmp_path, server_url)
    (shell.directory / "shop.py").write_text("\n\n".join(page.code("The worker")))
    for n in range(4):
        stream = f"WHATSAPP:{n % 2}"
        old.redis.xadd(stream, {"data": json.dumps({"phone": f"+{n}", "text": "hello"})})
    for stream in ("WHATSAPP:0", "WHATSAPP:1"):
        old.redis.xgroup_create(stream, "workers", "0")
    old.redis.lpush("orders:queue", json.dumps({"orderId": 1}))
    old.redis.lpush("orders:processing", json.dumps({"orderId": 2}))

    dry, streams, lists = [shell.ok(*command) for command in drain_commands("from_streams", old.url)]

    assert "4 can be moved, 0 would stay" in dry
    assert "4 moved, 0 left" in streams
    assert "2 moved, 0 left" in lists
    assert old.redis.xlen("WHATSAPP:0") == 0
    shell.start("worker", "shop:app")
    for queue, count in (("orders", 2), ("whatsapp", 4)):
        seen(lambda queue=queue, count=count: len(_completed(shell, queue)) == count, within=60)


def _completed(shell: Shell, queue: str) -> list[Any]:
    found: list[Any] = shell.json("jobs", queue, "--state", "completed")
    return found
