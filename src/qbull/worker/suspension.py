"""Suspension: a durable run leaves its worker when all that it waits for are sleeps, signals and called jobs.

While other steps of the run are under way, a sleep waits in memory. When the last of them has returned and
the code asks for nothing else, the run is suspended until the first of its sleeps is over, a signal comes
that it waits for, or a job has ended that it has called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from qbull.core.outcome import Suspended
from qbull.worker.replay import TURNS_PER_RESULT, Replay


class Sleep(NamedTuple):
    """A sleep of the run: its end in milliseconds of the server's clock, and whether it holds the lane.

    If it waits for a signal, `signal` is its name. If it waits for a signal or a called job, `seen` is the
    number of the newest signal or outcome that it knows.
    """

    due_ms: int
    hold_lane: bool
    signal: str | None = None
    seen: int | None = None


class Suspension:
    """The sleeps of one run.

    Args:
        replay: knows the steps that are under way.
        suspend: ends the run. Returns False if a sleep has to do that itself, by raising.
    """

    def __init__(self, replay: Replay, suspend: Callable[[Suspended], bool]) -> None:
        self._replay = replay
        self._suspend = suspend
        self._sleeping: dict[asyncio.Future[None], Sleep] = {}
        self._is_looking = False
        self.suspended: Suspended | None = None
        """Set when the run has to end."""

    async def sleep(self, sleep: Sleep, seconds: float) -> None:
        """Wait until the sleep is over in so many seconds, or until the run is suspended."""
        if seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        self._sleeping[over] = sleep
        timer = loop.call_later(seconds, _end, over)
        self.look_soon()
        try:
            await over
        finally:
            timer.cancel()
            del self._sleeping[over]

    def look_soon(self) -> None:
        """Suspend the run if nothing but sleeps is left in a few turns of the event loop."""
        if self._sleeping and not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look, TURNS_PER_RESULT)

    def _look(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._look, turns - 1)
            return
        self._is_looking = False
        waiting = [over for over in self._sleeping if not over.done()]
        if not waiting or len(waiting) < self._replay.outstanding:
            return
        sleeps = [self._sleeping[over] for over in waiting]
        due_ms, hold_lane = min(one.due_ms for one in sleeps), any(one.hold_lane for one in sleeps)
        names = sorted({one.signal for one in sleeps if one.signal is not None})
        seen = min((one.seen for one in sleeps if one.seen is not None), default=None)
        self.suspended = Suspended(due_ms, hold_lane=hold_lane, waits_for=names, seen=seen)
        if not self._suspend(self.suspended):
            for over in waiting:
                over.set_exception(self.suspended)


def _end(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)
