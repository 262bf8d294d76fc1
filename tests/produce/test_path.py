"""The enqueue path stays short: a plain enqueue visits few files of qbull."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import qbull
from qbull.core.record import DEFAULT_PRIORITY, PLAIN_HEADER, Body, encode_body, pack

MAX_FILES = 9
ROOT = str(Path(qbull.__file__).parent)


async def test_a_plain_enqueue_visits_at_most_nine_files(tmp_path: Path) -> None:
    async with qbull.App(f"embedded://{tmp_path}") as app:

        @app.queue("mail").task
        async def send(to: str) -> None: ...

        await send.enqueue(to="the first one registers the queue and opens the connection")
        files: set[str] = set()

        def visit(frame: FrameType, event: str, _: Any) -> None:
            name = frame.f_code.co_filename
            if event == "call" and name.startswith(ROOT):
                files.add(name.removeprefix(ROOT + "/"))

        sys.setprofile(visit)
        try:
            await send.enqueue(to="ada")
        finally:
            sys.setprofile(None)

    assert "produce/enqueue.py" in files
    assert len(files) <= MAX_FILES, sorted(files)


def test_the_plain_header_makes_the_record_that_pack_makes() -> None:
    body = Body("send", b"{}")

    assert PLAIN_HEADER + encode_body(body) == pack(body, priority=DEFAULT_PRIORITY, lane=b"")
