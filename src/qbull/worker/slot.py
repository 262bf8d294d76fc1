"""A slot: one job at a time, until when it may run, and why it was interrupted.

All slots of a queue share one timer. It is set for the earliest deadline and looks for the next when it
fires, so a job that ends in time costs no timer of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from qbull.core.outcome import ReportedError
from qbull.worker.current import RunningJob


class TimedOut(ReportedError):
    """The job ran longer than its timeout."""


class Cancelled(ReportedError):
    """Somebody has cancelled the job."""


class StartTooLate(Exception):
    """The start token of the job had expired when its task was about to start."""


class Interrupted(BaseException):
    """The worker stops before the job has ended: it is released, and this does not use up an attempt."""


class Slot:
    __slots__ = ("deadline", "job", "number", "since", "task", "timeout", "why")

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: asyncio.Task[None] | None = None
        # When its delivery started.
        self.since = 0.0
        self.job: RunningJob | None = None
        self.timeout = 0.0
        self.deadline: float | None = None
        self.why: BaseException | None = None

    def interrupt(self, why: BaseException) -> None:
        if self.why is None and self.task is not None:
            self.why = why
            self.task.cancel()

    def take_interrupt(self) -> BaseException | None:
        """Take back our own cancellation, so that the slot goes on. Returns its reason, None if not ours."""
        why, self.why = self.why, None
        if why is not None and self.task is not None:
            self.task.uncancel()
        return why

    async def take_late_interrupt(self) -> BaseException | None:
        """The same for a job that has ended by itself; its cancellation may be still to come."""
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return self.take_interrupt()


class Deadlines:
    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._timer: asyncio.TimerHandle | None = None
        self._at = float("inf")

    def limit(self, slot: Slot, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        slot.timeout = seconds
        slot.deadline = loop.time() + seconds
        if slot.deadline < self._at:
            self._set(loop, slot.deadline)

    @contextmanager
    def suspended(self, slot: Slot) -> Iterator[None]:
        """Let the timeout of a slot start over after the block."""
        has_timeout, slot.deadline = slot.deadline is not None, None
        yield
        if has_timeout:
            self.limit(slot, slot.timeout)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        self.close()
        self._at = at
        self._timer = loop.call_at(at, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer, self._at = None, float("inf")
        for slot in self._slots:
            if slot.deadline is not None and slot.deadline <= now:
                slot.deadline = None
                slot.interrupt(TimedOut(f"it ran longer than its timeout of {slot.timeout:g} s"))
        earliest = min((slot.deadline for slot in self._slots if slot.deadline is not None), default=None)
        if earliest is not None:
            self._set(loop, earliest)
