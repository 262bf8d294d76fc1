"""The parent of worker processes on a machine that is short of something: it waits, says so once, and leaves nothing open."""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import os
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from conftest import eventually
from qbull.config import QueueSettings
from qbull.core.sharing import Sharing
from qbull.errors import ServerAway
from qbull.store.store import Store
from qbull.worker.process.channel import TakeRole
from qbull.worker.process.child import WorkerCommand, WorkerProcess
from qbull.worker.process.supervisor import Supervisor, SupervisorSettings


def supervise(store: Store) -> Supervisor:
    """With a child that does nothing, and does not outlive the test for long."""
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    settings = SupervisorSettings(processes=1, grace=0.0, min_idle=30.0)
    return Supervisor(store, [QueueSettings("work")], waiting_command(command), settings)


def waiting_command(command: list[str]) -> WorkerCommand:
    return WorkerCommand(lambda *_: command, lambda _: TakeRole(Sharing()))


def short_of_processes(*_: Any, **__: Any) -> Any:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.fixture
def two_refusals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The machine starts no process the first two times."""
    start, tries = asyncio.create_subprocess_exec, [0]

    async def start_at_last(*command: str, **options: Any) -> Any:
        tries[0] += 1
        if tries[0] <= 2:
            short_of_processes()
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_at_last)
    return tries


@pytest.mark.timeout(90)
async def test_a_process_that_cannot_be_started_is_tried_again_and_said_once(
    store: Store, server_url: str, two_refusals: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervise(Store(server_url, "test"))

    async def child_is_there() -> bool:
        return running.done() or bool(supervisor._children)

    running = asyncio.create_task(supervisor.run())
    try:
        await eventually(child_is_there, within=30)
    finally:
        supervisor.stop()
        await asyncio.wait([running], timeout=30)

    assert await asyncio.wait_for(running, 1) == 0
    assert two_refusals == [3]
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in said] == [
        f"cannot start a worker process: [Errno {errno.EAGAIN}] Resource temporarily unavailable; trying again until it works"
    ]


@pytest.mark.timeout(60)
async def test_a_parent_that_cannot_start_a_process_ends_when_it_is_told(
    store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asyncio, "create_subprocess_exec", short_of_processes)
    supervisor = supervise(Store(server_url, "test"))
    running = asyncio.create_task(supervisor.run())

    async def said() -> bool:
        return "cannot start a worker process" in caplog.text

    try:
        await eventually(said, within=20)
    finally:
        supervisor.stop()

    assert await asyncio.wait_for(running, 20) == 0


@pytest.mark.parametrize("of", [(asyncio, "create_subprocess_exec"), (os, "pipe"), (mmap, "mmap")])
async def test_a_start_that_failed_leaves_nothing_open(
    store: Store, monkeypatch: pytest.MonkeyPatch, of: tuple[Any, str]
) -> None:
    before = boards_and_pipes()

    with monkeypatch.context() as short, pytest.raises(BlockingIOError):
        short.setattr(*of, short_of_processes)
        await WorkerProcess.start(waiting_command(["never"]), slots=10)

    assert boards_and_pipes() - before == Counter()


def boards_and_pipes() -> Counter[str]:
    """What is open, by what it is: other tests may leave sockets, which go when they are collected."""
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{fd}")
            found.update([name] if name.startswith("pipe:") or "(deleted)" in name else [])
    return found


@pytest.mark.timeout(90)
async def test_the_next_process_is_started_while_a_part_of_the_cluster_is_away(
    store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the dead one held there is taken back when that part is there again."""
    monkeypatch.setattr("qbull.worker.process.supervisor.RECLAIM_TIMEOUT_SECONDS", 0.1)
    supervisor = supervise(Store(server_url, "test"))
    is_back, asked = asyncio.Event(), list[str]()

    async def reclaim(worker: str, running: object) -> int:
        asked.append(worker)
        if not is_back.is_set():
            raise ServerAway("this node is away")
        return 0

    monkeypatch.setattr(supervisor._heartbeat.reclaimer, "reclaim", reclaim)

    async def another_is_there() -> bool:
        return running.done() or bool(supervisor._children.keys() - {first.id})

    async def all_is_taken_back() -> bool:
        return all(cleaning.done() for cleaning in supervisor._cleaning)

    running = asyncio.create_task(supervisor.run())
    try:
        await eventually(lambda: _any(supervisor._children), within=30)
        (first,) = supervisor._children.values()
        first.process.kill()
        await eventually(another_is_there, within=30)
        assert first.id not in supervisor._children and set(asked) == {first.id}
        assert not await all_is_taken_back()

        is_back.set()
        await eventually(all_is_taken_back, within=30)
    finally:
        supervisor.stop()
        await asyncio.wait([running], timeout=30)

    assert await asyncio.wait_for(running, 1) == 0


async def _any(children: dict[str, Any]) -> bool:
    return bool(children)
