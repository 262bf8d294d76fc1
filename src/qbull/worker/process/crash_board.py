"""The crash board: the jobs that a worker is running, in memory that its supervisor can read after a crash.

A worker writes the position of a delivery into a slot when it starts a job, and clears the slot when the job
has ended. If the worker is killed, the supervisor reads which jobs were running, so that only these are
suspected.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

BOARD_SLOT_BYTES = 160
"""Enough for a queue name of 100 characters."""
BOARD_TIME_BYTES = 8
"""Behind the slots: when the event loop last ran."""
MIN_BOARD_SLOTS = 1000
"""Slots for each queue: its concurrency can be raised up to this while the worker runs."""
_TIME = struct.Struct("=d")


def board_slots_for(concurrency: int) -> int:
    """The number of slots to reserve for a queue."""
    return max(concurrency, MIN_BOARD_SLOTS)


class CrashBoard:
    """`slots` entries of BOARD_SLOT_BYTES each.

    An entry is a length, then `<queue> <partition> <level><entry>[ <process>]`.
    """

    def __init__(self, fd: int, slots: int) -> None:
        self.fd = fd
        self.slots = slots
        self._time_at = slots * BOARD_SLOT_BYTES
        self._memory = mmap.mmap(fd, self._time_at + BOARD_TIME_BYTES)

    @classmethod
    def make(cls, slots: int) -> CrashBoard:
        """Make a board in memory that a child process can inherit."""
        with tempfile.TemporaryFile() as file:
            file.truncate(slots * BOARD_SLOT_BYTES + BOARD_TIME_BYTES)
            fd = os.dup(file.fileno())
        try:
            return cls(fd, slots)
        except BaseException:
            os.close(fd)
            raise

    def start(self, slot: int, text: bytes) -> None:
        """A job starts in this slot."""
        at = slot * BOARD_SLOT_BYTES
        length = len(text)
        self._memory[at + 1 : at + 1 + length] = text
        self._memory[at] = length

    def in_process(self, slot: int, pid: int) -> None:
        """The job of the slot runs in a process of its own, which leads a process group."""
        at = slot * BOARD_SLOT_BYTES
        length = self._memory[at]
        self.start(slot, self._memory[at + 1 : at + 1 + length] + b" %d" % pid)

    def end(self, slot: int) -> None:
        """The job in this slot has ended."""
        self._memory[slot * BOARD_SLOT_BYTES] = 0

    def loop_ran(self, at: float) -> None:
        """The event loop of the worker runs, at this time of the monotonic clock; 0 if nobody watches it."""
        _TIME.pack_into(self._memory, self._time_at, at)

    @property
    def loop_ran_at(self) -> float:
        """When the event loop last ran; 0 if that is not known."""
        found: float = _TIME.unpack_from(self._memory, self._time_at)[0]
        return found

    def running(self) -> list[tuple[str, int, bytes]]:
        """Queue, partition and position of each job that has started and not ended."""
        return [
            (queue.decode(), int(partition), position) for queue, partition, position, *_ in self._entries()
        ]

    def processes(self) -> list[int]:
        """The processes of their own in which jobs are running."""
        return [int(entry[3]) for entry in self._entries() if len(entry) > 3]

    def _entries(self) -> list[list[bytes]]:
        found = []
        for at in range(0, self.slots * BOARD_SLOT_BYTES, BOARD_SLOT_BYTES):
            length = self._memory[at]
            if length:
                found.append(self._memory[at + 1 : at + 1 + length].split(b" "))
        return found

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
        os.close(self.fd)
