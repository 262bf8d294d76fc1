"""The gate: may a job of this queue begin now, where the queue has limits over all its workers?

Nothing is fetched without a permit for it, so a worker that must wait holds no jobs, and what it has in its hand are the
places that it uses. A start is good for a moment only: one that was not made in time is given back with the next
question. A queue without limits never asks.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from math import inf

from qbull.config import QueueSettings
from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs import limits
from qbull.store.verbs.limits import StartToken, TokenGrant
from qbull.worker.actor import stop_actors
from qbull.worker.outage import Outage
from qbull.worker.prefetch import PrefetchBuffer

START_WAIT_SECONDS = 0.1
"""Seconds for which a slot waits for a start. After that it gives its jobs back."""
MAX_REQUESTED_TOKENS = 500
FREE_SLOT_REPORT_SECONDS = 0.005
"""Seconds after which a place that is free is reported, where no question has done so."""


UNLIMITED_START = StartToken(0.0, inf, inf, 0)


class Limiter:
    """For one queue."""

    def __init__(
        self, store: Store, settings: QueueSettings, worker: str, buffer: PrefetchBuffer, outage: Outage
    ) -> None:
        self._store = store
        self._settings = settings
        self._worker = worker
        self._buffer = buffer
        self._outage = outage
        self._starts: deque[StartToken] = deque()
        self._unused: list[StartToken] = []
        self._reserved = 0  # deliveries that are permitted, if only later
        self._in_flight = 0  # those that are being fetched
        self._reported_slots = 0  # places that the server believes to be in use here
        self._queued_on_server = False  # the server may have this worker in its line
        self._doubt = False
        self._report: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._speaking = asyncio.Lock()
        self._refill = asyncio.Lock()
        self._wake_up = asyncio.Event()
        self.limited = False  # by one of these or both
        self.has_rate = False  # by a rate
        self.has_max_active = False  # by max_active

    def apply_settings(self, settings: QueueSettings) -> None:
        """These limits are in force now."""
        self._settings = settings
        self.has_rate = settings.rate is not None
        self.has_max_active = settings.max_active is not None
        self.limited = self.has_rate or self.has_max_active
        self._starts.clear()
        self._unused.clear()
        self._reserved = 0
        self._wake_up.set()

    def wake_up(self) -> None:
        """A place may be free."""
        self._wake_up.set()

    async def acquire(self, count: int, *, wait_for_one: bool = True) -> int:
        """How many deliveries may be fetched now; say `fetched` afterwards. Waits until it is at least one, if wait_for_one."""
        count = min(count, MAX_REQUESTED_TOKENS)
        async with self._turn:
            try:
                while self.limited:
                    self._wake_up.clear()
                    got, wait = await self._try(count)
                    if got or not wait_for_one:
                        self._reserved -= got
                        self._in_flight += got
                        return got
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait):
                            await self._wake_up.wait()
            except BaseException:
                self._release_reserved()  # nobody waits here any more, or it is not known what was granted
                raise
            self._in_flight += count
            return count

    def fetched(self, permitted: int, found: int) -> None:
        """So much of what was permitted is in the hand by now; the rest may be fetched yet."""
        self._in_flight -= permitted
        if self.limited:
            self._reserved += permitted - found

    def abandon(self) -> None:
        """A reader has ended: nobody fetches what it was permitted."""
        if self._reserved:
            self._release_reserved()

    async def take_start(self) -> StartToken | None:
        """Take a start for a job that begins now. None where there is none to be had soon."""
        until = time.monotonic() + START_WAIT_SECONDS
        while self.has_rate:
            wait = self._next_start()
            if wait is not None and wait <= 0:
                return self._starts.popleft()
            if wait is None:
                wait = await self._ask_for_starts()
                if wait is None:
                    return None
            if time.monotonic() + wait > until:
                return None
            await asyncio.sleep(wait)
        return UNLIMITED_START

    def return_start(self, start: StartToken) -> None:
        """The job did not begin in time: the start is given back."""
        self._unused.append(start)

    def slot_freed(self) -> None:
        """A delivery has left the buffer. Whoever asks next says so; where nobody does, it is said all the same."""
        self._wake_up.set()
        if self.has_max_active and self._report is None:
            self._report = asyncio.create_task(self._report_soon())

    async def settle_up(self) -> None:
        """Nothing is wanted now: leave the line, and let others have the places and starts that are not used."""
        self._reserved = 0
        while self._starts:
            self._unused.append(self._starts.popleft())
        if self.limited:
            await self._ask(0)

    async def leave(self) -> None:
        """The worker ends, or the queue has no limits any more."""
        if self._report is not None:
            await stop_actors([self._report])
        if self._queued_on_server:
            await limits.free_slots(self._store, self._settings.name, [self._worker])
            self._reported_slots, self._queued_on_server = 0, False

    def _used_slots(self) -> int:
        return len(self._buffer) + self._in_flight + self._reserved

    async def _report_soon(self) -> None:
        try:
            while True:
                await asyncio.sleep(FREE_SLOT_REPORT_SECONDS)
                async with self._turn:
                    pass  # who asks meanwhile says it too
                if not self.limited or not (self._doubt or self._reported_slots > self._used_slots()):
                    return
                await self._outage.retry_until_up(self.settle_up)
        finally:
            self._report = None

    def _release_reserved(self) -> None:
        """The server may believe that this worker waits, or uses places, when it does not."""
        self._doubt = True
        if self._report is None:
            self._report = asyncio.create_task(self._report_soon())

    async def _ask_for_starts(self) -> float | None:
        """For all that are in the hand and not begun; one question at a time. Seconds to wait, None where none can be asked."""
        async with self._refill:
            if self._starts:
                return 0.0  # another slot has asked meanwhile
            try:
                grant = await self._send(1 + self._buffer.waiting, places=None, within=START_WAIT_SECONDS / 2)
            except ServerError as error:
                self._outage.failed(error, self)
                return None
            self._outage.recovered(self)
            if grant.granted:
                return 0.0
            self._release_reserved()
            return grant.wait

    async def _try(self, count: int) -> tuple[int, float]:
        """How many may be fetched now, or else in how many seconds it is worth another try."""
        if not self._reserved:
            grant = await self._ask(count)
            if not grant.granted:
                return 0, grant.wait
        if not self.has_rate:
            return min(self._reserved, count), 0.0
        wait = self._next_start()
        self._reserved = min(self._reserved, len(self._starts))
        if wait is None or wait > 0:
            return 0, wait or 0.0
        now = time.monotonic()
        return min(sum(start.after <= now for start in self._starts), self._reserved, count), 0.0

    def _next_start(self) -> float | None:
        """Seconds until the next start that was granted may be made; None where there is none."""
        now = time.monotonic()
        while self._starts and self._starts[0].before < now:
            self._unused.append(self._starts.popleft())
        return self._starts[0].after - now if self._starts else None

    async def _ask(self, count: int) -> TokenGrant:
        """Permits for deliveries. One question after the other: an older count that came later would be believed."""
        async with self._speaking:
            places = self._used_slots()
            grant = await self._send(count, places=places)
            self._reported_slots = places + grant.granted if self.has_max_active else 0
            self._reserved += grant.granted
            self._doubt = False
            return grant

    async def _send(self, count: int, *, places: int | None, within: float | None = None) -> TokenGrant:
        unused, self._unused = self._unused, []  # never sent twice: taken back twice it would be one too many
        self._queued_on_server = True
        grant = await limits.acquire(
            self._store, self._settings, self._worker, count, places=places, within=within, unused=unused
        )
        self._starts.extend(grant.starts)
        return grant
