"""Stack dumps: a process of the CPU pool writes its stack to a file when it gets a signal.

faulthandler does that without running Python code, so it also works while a C function does not return.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import re
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from traceback import FrameSummary, format_list

STACK_SIGNAL = signal.SIGURG
"""A process that does not know it yet, or any more, ignores it."""
DUMP_POLL_SECONDS = 0.025
MAX_DUMP_POLLS = 80
MAX_DUMP_BYTES = 65_536
MAX_REPORTED_FRAMES = 100
_WORKER_ROOM = str(Path(__file__).parents[1])
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def dump_on_signal(fd: int) -> None:
    """In the process: write the stack of the main thread to this file on STACK_SIGNAL."""
    faulthandler.register(STACK_SIGNAL, file=fd, all_threads=False, chain=False)


class StackDump:
    """The worker's end: the file that a process dumps its stack to."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the process
        self._turn = asyncio.Lock()

    @property
    def fd(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()

    def _dumped(self) -> bytes:
        return b"" if self._file.closed else os.pread(self.fd, MAX_DUMP_BYTES, 0)

    async def read(self, pid: int) -> list[FrameSummary]:
        """The frames of a process that called `dump_on_signal`, outermost first; none if it is gone."""
        async with self._turn:
            if self._file.closed:
                return []
            os.ftruncate(self.fd, 0)
            os.lseek(self.fd, 0, os.SEEK_SET)
            os.kill(pid, STACK_SIGNAL)
            before = b""
            for _ in range(MAX_DUMP_POLLS):
                await asyncio.sleep(DUMP_POLL_SECONDS)
                dumped = self._dumped()
                if dumped and dumped == before:
                    return _frames(dumped.decode("utf-8", "replace"))
                before = dumped
        return []


def _frames(text: str) -> list[FrameSummary]:
    found = [FrameSummary(one[1], int(one[2]), one[3]) for one in _FRAME.finditer(text)]
    return found[::-1]


def format_frames(found: Sequence[FrameSummary]) -> str:
    """The frames behind the last one of the worker; all of them if there are no others."""
    if not found:
        return ""
    own = [n for n, frame in enumerate(found) if frame.filename.startswith(_WORKER_ROOM)]
    task = list(found[own[-1] + 1 :]) if own and own[-1] + 1 < len(found) else list(found)
    lines = format_list(task[-MAX_REPORTED_FRAMES:])
    return "Stack (most recent call last):\n" + "".join(lines).rstrip("\n")
