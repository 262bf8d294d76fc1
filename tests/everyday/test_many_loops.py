"""A program that starts an event loop for each call, as async views of Flask do, keeps no connections."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

import qbull

CALLS = 30


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_connections_of_closed_loops_are_dropped(server_url: str) -> None:
    app = qbull.App(server_url, prefix="loops")
    queue = app.queue("views")

    @queue.task
    async def greet(n: int) -> None: ...

    async def view(n: int) -> None:
        await greet.enqueue(n)

    before = open_files()
    for n in range(CALLS):
        asyncio.run(view(n))

    gc.collect()
    assert len(app._clients) == 1, "that of the last loop goes with the next one"
    assert open_files() - before < 5


def open_files() -> int:
    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not list open files")
    return len(os.listdir("/proc/self/fd"))
