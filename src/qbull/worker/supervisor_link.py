"""The supervisor link: a worker process's end of the control channel to its supervisor.

Suspects are jobs whose worker crashed. An ordinary worker process parks the delivery of a suspect and
offers it. The quarantine process takes it over and runs it. A worker without a supervisor has nobody to
offer suspects to, and runs them itself (isolation.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from qbull.worker.process.channel import (
    BeCautious,
    ControlChannel,
    LeaveNow,
    Message,
    QuarantineIdle,
    ReplacementWanted,
    SuspectFound,
    SuspectTaken,
    TakeRole,
    TakeSuspect,
)

if TYPE_CHECKING:
    from qbull.worker.suspect_taker import SuspectTaker

log = logging.getLogger("qbull.worker")

QUARANTINE_IDLE_SECONDS = 10.0
"""The quarantine process ends after it has had nothing to run for this long."""


class SupervisorLink:
    """The role of the process comes with the first message.

    `suspects` is for ordinary workers, `quarantine` for the quarantine process; the other one is None.
    """

    def __init__(self, channel: ControlChannel) -> None:
        self.channel = channel
        self.role: TakeRole | None = None
        self.role_given = asyncio.Event()
        self.suspects: SuspectGiver | None = None
        self.quarantine: Quarantine | None = None
        self.leave = asyncio.Event()
        """Set when a successor runs jobs in place of this process."""
        self._asked = False

    def ask_for_successor(self, reason: str, level: int = logging.WARNING) -> None:
        """Ask once for a process that takes the place of this one."""
        if not self._asked:
            self._asked = True
            log.log(level, "%s; another process takes over and this one ends", reason)
            self.channel.send(ReplacementWanted(reason))

    async def run(self) -> None:
        """Handle the messages of the supervisor."""
        await self.channel.run(self._receive)

    def _receive(self, message: Message) -> None:
        match message:
            case TakeRole(quarantine=quarantine):
                if self.role is None:
                    self.quarantine = Quarantine(self.channel) if quarantine else None
                    self.suspects = None if quarantine else SuspectGiver(self.channel)
                    self.role = message
                    self.role_given.set()
            case TakeSuspect():
                if self.quarantine is not None:
                    self.quarantine.take(message)
            case SuspectTaken(suspect=suspect):
                if self.suspects is not None:
                    self.suspects.taken(suspect)
            case BeCautious(seconds=seconds):
                if self.suspects is not None:
                    self.suspects.be_cautious(seconds)
            case LeaveNow():
                self.leave.set()
            case _:
                pass


class Quarantine:
    """The quarantine process's end of the channel: passes requests to the queues, and reports when all are
    idle.
    """

    def __init__(self, channel: ControlChannel) -> None:
        self._channel = channel
        self._takers: dict[str, SuspectTaker] = {}
        self._busy = asyncio.Event()
        self.turn = asyncio.Lock()
        """Suspects start one after the other, over all queues."""

    def serve(self, queue: str, taker: SuspectTaker) -> None:
        """Take over suspects of this queue from now on."""
        self._takers[queue] = taker

    def take(self, request: TakeSuspect) -> None:
        """Pass a request on."""
        self._busy.set()
        taker = self._takers.get(request.suspect.queue)
        if taker is not None:
            taker.take(request)

    def taken(self, suspect: SuspectFound) -> None:
        """This process has a suspect, or the suspect has ended."""
        self._channel.send(SuspectTaken(suspect))

    async def run(self) -> None:
        """Report when there was nothing to run for a while."""
        while True:
            self._busy.clear()
            try:
                async with asyncio.timeout(QUARANTINE_IDLE_SECONDS):
                    await self._busy.wait()
            except TimeoutError:
                if all(taker.idle for taker in self._takers.values()):
                    self._channel.send(QuarantineIdle())


class SuspectGiver:
    """An ordinary worker's end of the channel: parks suspects until the quarantine process has taken them
    over.
    """

    def __init__(self, channel: ControlChannel) -> None:
        self._channel = channel
        self._parked: dict[SuspectFound, Callable[[], None]] = {}
        self._cautious_until = 0.0

    def be_cautious(self, seconds: float) -> None:
        """Take every job whose worker crashed for a suspect, for so many seconds."""
        self._cautious_until = time.monotonic() + seconds

    @property
    def cautious(self) -> bool:
        """Whether a job is a suspect after its first crash; otherwise after the second."""
        return time.monotonic() < self._cautious_until

    def offer(self, suspect: SuspectFound, taken: Callable[[], None]) -> None:
        """Offer a parked delivery; `taken` is called when this worker does not hold it any more."""
        self._parked[suspect] = taken
        self._channel.send(suspect)

    def taken(self, suspect: SuspectFound) -> None:
        """The quarantine process has taken it over, or it has ended."""
        taken = self._parked.pop(suspect, None)
        if taken is not None:
            taken()
