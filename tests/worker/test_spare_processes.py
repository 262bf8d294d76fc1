"""After a crash spare processes wait for a role, and the suspects least likely to crash again run first."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from conftest import eventually
from qbull.core.sharing import Sharing
from qbull.worker.process.channel import Message, SuspectFound, TakeRole, TakeSuspect
from qbull.worker.process.child import WorkerCommand, WorkerProcess
from qbull.worker.process.quarantine import QuarantineKeeper
from qbull.worker.process.starter import SPARE_PROCESS_COUNT, ProcessStarter

WAITING = [sys.executable, "-c", "import time; time.sleep(60)"]


@asynccontextmanager
async def running_starter() -> AsyncIterator[ProcessStarter]:
    """A starter whose processes do nothing."""
    stop = asyncio.Event()
    command = WorkerCommand(lambda *_: WAITING, lambda number: TakeRole(Sharing(), quarantine=number is None))
    starter = ProcessStarter(command, 10, stop)
    running = asyncio.create_task(starter.run())
    try:
        yield starter
    finally:
        stop.set()
        starter.stop()
        await running
        assert starter._spares == []


async def has_spares(starter: ProcessStarter, many: int = SPARE_PROCESS_COUNT) -> bool:
    return len(starter._spares) == many


async def end(child: WorkerProcess) -> None:
    child.process.kill()
    await child.process.wait()
    child.close()


async def test_without_a_crash_there_are_no_spare_processes() -> None:
    async with running_starter() as starter:
        child = await starter.start(0)
        assert child is not None
        child.ready.set()
        await asyncio.sleep(0.1)
        assert starter._spares == []
        await end(child)


async def test_a_spare_process_takes_the_role_and_another_one_takes_its_place() -> None:
    async with running_starter() as starter:
        starter.keep_spares()
        await eventually(lambda: has_spares(starter))
        first, *others = [spare.process.pid for spare in starter._spares]

        child = await starter.start(3)
        assert child is not None and (child.process.pid, child.number) == (first, 3)
        child.ready.set()
        await eventually(lambda: has_spares(starter))
        assert {spare.process.pid for spare in starter._spares} > set(others)
        await end(child)


async def test_spare_processes_wait_until_the_process_that_takes_over_is_ready() -> None:
    async with running_starter() as starter:
        child = await starter.start(0)
        assert child is not None
        starter.keep_spares()
        await asyncio.sleep(0.1)
        assert starter._spares == []
        child.ready.set()
        await eventually(lambda: has_spares(starter))
        await end(child)


async def test_a_spare_process_that_has_died_gets_no_role() -> None:
    async with running_starter() as starter:
        starter.keep_spares()
        await eventually(lambda: has_spares(starter))
        dead, alive = starter._spares
        dead.process.kill()
        await dead.process.wait()

        child = await starter.start(0)

        assert child is alive
        await end(child)


async def test_spare_processes_end_some_time_after_the_last_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbull.worker.process.starter.SPARE_SECONDS", 5.0)
    monkeypatch.setattr("qbull.worker.process.starter.SPARE_DELAY_SECONDS", 0.01)
    async with running_starter() as starter:
        starter.keep_spares()
        await eventually(lambda: has_spares(starter))
        pids = [spare.process.pid for spare in starter._spares]
        await eventually(lambda: has_spares(starter, 0))

        await eventually(lambda: are_gone(pids))


async def are_gone(pids: list[int]) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


class QuietProcess:
    """Stands in for a worker process, and keeps what it is sent."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.sent: list[Message] = []
        self.channel = self

    def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def order(self) -> list[bytes]:
        """The positions of the suspects in the order in which it runs them."""
        offered = [message for message in self.sent if isinstance(message, TakeSuspect)]
        return [offer.suspect.position for offer in sorted(offered, key=lambda offer: offer.rank)]


def test_suspects_whose_task_has_crashed_the_quarantine_process_run_after_the_others() -> None:
    keeper, worker = QuarantineKeeper(), cast(Any, QuietProcess("w1"))
    guilty = SuspectFound("work", 0, b"1", 1, "poison")
    suspects = [SuspectFound("work", 0, b"2", 1, "poison"), SuspectFound("work", 0, b"3", 1, "harmless")]
    for suspect in (guilty, *suspects, SuspectFound("work", 0, b"4", 2, "harmless")):
        keeper.found(worker, suspect)
    first, second = cast(Any, QuietProcess("q1")), cast(Any, QuietProcess("q2"))
    keeper.ready(first)
    assert first.order == [b"1", b"2", b"3", b"4"]

    keeper.taken(guilty)
    keeper.ended(first, [("work", 0, b"1")])
    keeper.ready(second)

    assert second.order == [b"3", b"2", b"4"]
