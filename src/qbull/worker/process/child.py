"""A worker process as its supervisor sees it: the process, its crash board, its lifeline and its control
channel.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

import msgspec

from qbull.store.verbs.workers import new_worker_id
from qbull.worker.process.channel import ControlChannel, Message, TakeRole, TimedOutJob
from qbull.worker.process.crash_board import CrashBoard

log = logging.getLogger("qbull.supervisor")

ORPHAN_TIMEOUT_SECONDS = 10.0
"""How long to wait for the processes of a dead worker to end. After that its jobs go to others anyway."""


class ProcessHandles(msgspec.Struct, frozen=True):
    """The file descriptors that a worker process inherits."""

    board: int
    life: int
    channel: int


class WorkerCommand(msgspec.Struct, frozen=True):
    """How to start a worker process, and what to tell it.

    Args:
        argv: Returns the command line, from the id of the worker and its file descriptors.
        role: Returns the role of a process, from its number. The quarantine process has no number.
    """

    argv: Callable[[str, ProcessHandles], Sequence[str]]
    role: Callable[[int | None], TakeRole]


class WorkerProcess(msgspec.Struct):
    id: str
    process: asyncio.subprocess.Process
    board: CrashBoard
    life: int
    channel: ControlChannel
    number: int | None = None
    """None for the quarantine process, and for a process without a role."""
    ready: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """It runs jobs."""
    replace: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """It has asked for a successor."""
    timed_out: list[TimedOutJob] = msgspec.field(default_factory=list)
    """Outcomes to record if the process ends before the functions of these jobs return."""
    started: float = msgspec.field(default_factory=time.monotonic)
    """When it got its role."""
    listening: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, command: WorkerCommand, slots: int) -> WorkerProcess:
        """Start a process without a role, with a crash board of so many slots.

        Raises OSError if the machine is short of something.
        """
        id = new_worker_id()
        with ExitStack() as opened, ExitStack() as theirs:
            board = CrashBoard.make(slots)
            opened.callback(board.close)
            life, ours = os.pipe()
            theirs.callback(os.close, life)
            opened.callback(os.close, ours)
            here, there = socket.socketpair()
            theirs.callback(there.close)
            opened.callback(here.close)
            here.setblocking(False)
            handles = ProcessHandles(board.fd, life, there.fileno())
            process = await asyncio.create_subprocess_exec(
                *command.argv(id, handles),
                pass_fds=(handles.board, handles.life, handles.channel),
                stdin=asyncio.subprocess.DEVNULL,
            )
            opened.pop_all()
        return cls(id, process, board, ours, ControlChannel(here))

    def take_role(self, number: int | None, role: TakeRole) -> None:
        """Tell the process which jobs it runs."""
        self.number = number
        self.started = time.monotonic()
        self.channel.send(role)

    def listen(self, receive: Callable[[WorkerProcess, Message], None]) -> None:
        """Pass on the messages of the process."""
        self.listening = asyncio.create_task(self.channel.run(lambda message: receive(self, message)))

    def send_signal(self, name: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(name)

    async def end_orphans(self) -> None:
        """End the processes in which the dead worker ran `cpu=True` jobs, before others start these jobs."""
        left = self.board.processes()
        deadline = time.monotonic() + ORPHAN_TIMEOUT_SECONDS
        while left := [pid for pid in left if _kill_group(pid)]:
            if time.monotonic() > deadline:
                log.error(
                    "worker %s: processes %s cannot be killed; their jobs start elsewhere", self.id, left
                )
                return
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Close everything that belongs to the dead process."""
        self.board.close()
        os.close(self.life)
        self.channel.close()


def _kill_group(pid: int) -> bool:
    """Kill a process and everything that it has started. Returns whether anything of it was left."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
