"""The limiter: may a job start now, if the queue has limits over all its workers?

Nothing is fetched before the server has granted a slot for it, so a worker that must wait holds no jobs, and
the deliveries in its buffer are the slots that it uses. A start token is valid for a moment only: an unused
one is returned with the next request. A queue without limits never asks.
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
from qbull.store.verbs.limits import StartToken, TokenGrant, TokenRequest
from qbull.worker.actor import stop_actors
from qbull.worker.outage import Outage
from qbull.worker.prefetch import PrefetchBuffer

PREFETCH_SECONDS = 0.05
"""Seconds of work that a worker may hold beyond its running jobs."""
START_WAIT_SECONDS = 0.1
"""Seconds for which a worker slot waits for a start token. After that it releases its jobs."""
MAX_REQUESTED_TOKENS = 500
FREE_SLOT_REPORT_SECONDS = 0.005
"""Seconds after which a free slot is reported, unless a request has done so."""


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
        # Deliveries that are granted, some of them for later.
        self._reserved = 0
        # Deliveries that are being fetched.
        self._in_flight = 0
        # Slots that the server counts as used by this worker.
        self._reported_slots = 0
        # This worker may wait in the server's queue for slots.
        self._queued_on_server = False
        self._doubt = False
        self._report: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._speaking = asyncio.Lock()
        self._refill = asyncio.Lock()
        self._wake_up = asyncio.Event()
        self.has_rate = False
        self.has_max_active = False
        # Either of the two.
        self.limited = False
        self.prefetch_seconds = PREFETCH_SECONDS
        self.spare_granted = 0
        """Slots that the last request got beyond those that it needed."""

    def apply_settings(self, settings: QueueSettings) -> None:
        """Apply changed limits."""
        self._settings = settings
        self.has_rate = settings.rate is not None
        self.has_max_active = settings.max_active is not None
        self.limited = self.has_rate or self.has_max_active
        self.prefetch_seconds = PREFETCH_SECONDS
        if settings.max_active is not None:
            # A prefetched delivery occupies a slot without running. See `spare`.
            self.prefetch_seconds = 0.0
        elif settings.rate is not None:
            # The tokens of prefetched deliveries must still be valid when these start.
            self.prefetch_seconds = min(PREFETCH_SECONDS, settings.rate.slack / 3)
        self._starts.clear()
        self._unused.clear()
        self._reserved = 0
        self._wake_up.set()

    def wake_up(self) -> None:
        """A slot may be free."""
        self._wake_up.set()

    async def acquire(self, count: int, *, spare: int = 0, wait_for_one: bool = True) -> int:
        """The number of deliveries that may be fetched now; call `fetched` afterwards.

        With `wait_for_one` it waits until that is at least one. If many slots are free, it may be more than
        `count`, by `spare` at most.
        """
        count = min(count, MAX_REQUESTED_TOKENS)
        spare = min(spare, MAX_REQUESTED_TOKENS - count)
        async with self._turn:
            try:
                while self.limited:
                    self._wake_up.clear()
                    got, wait = await self._try(count, spare)
                    if got or not wait_for_one:
                        self._reserved -= got
                        self._in_flight += got
                        return got
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait):
                            await self._wake_up.wait()
            except BaseException:
                # Nobody waits here any more, or it is unknown how much was granted.
                self._release_reserved()
                raise
            self._in_flight += count
            return count

    def fetched(self, permitted: int, found: int) -> None:
        """Of `permitted` deliveries `found` are in the buffer now; the rest may still be fetched."""
        self._in_flight -= permitted
        if self.limited:
            self._reserved += permitted - found

    def abandon(self) -> None:
        """A reader has ended: nobody fetches the deliveries that were granted to it."""
        if self._reserved:
            self._release_reserved()

    def start_now(self) -> StartToken | None:
        """Take a start token that is valid now, if there is one."""
        if self._starts and self._starts[0].after <= time.monotonic() <= self._starts[0].before:
            return self._starts.popleft()
        return None

    async def take_start(self) -> StartToken | None:
        """Take a start token for a job. Returns None if there will be none soon."""
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
        """The job did not start in time: return its token."""
        self._unused.append(start)

    def slot_freed(self) -> None:
        """A delivery has left the buffer. The next request reports it, or a report of its own."""
        self._wake_up.set()
        if self.has_max_active and self._report is None:
            self._report = asyncio.create_task(self._report_soon())

    async def settle_up(self) -> None:
        """Leave the server's queue, and return unused slots and tokens to the other workers."""
        self._reserved = 0
        while self._starts:
            self._unused.append(self._starts.popleft())
        if self.limited:
            await self._ask(0)

    async def leave(self) -> None:
        """Return all slots: the worker stops, or the limits have changed."""
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
                    # A request that runs meanwhile reports it too.
                    pass
                if not self.limited or not (self._doubt or self._reported_slots > self._used_slots()):
                    return
                await self._outage.retry_until_up(self.settle_up)
        finally:
            self._report = None

    def _release_reserved(self) -> None:
        """Correct the server, which may count slots or a waiting worker that do not exist."""
        self._doubt = True
        if self._report is None:
            self._report = asyncio.create_task(self._report_soon())

    async def _ask_for_starts(self) -> float | None:
        """Request tokens for all waiting deliveries, one request at a time.

        Returns the seconds to wait, or None if the server is unavailable.
        """
        async with self._refill:
            if self._starts:
                # Another slot has requested some meanwhile.
                return 0.0
            try:
                grant = await self._send(
                    1 + self._buffer.waiting, used_slots=None, within=START_WAIT_SECONDS / 2
                )
            except ServerError as error:
                self._outage.failed(error, self)
                return None
            self._outage.recovered(self)
            if grant.granted:
                return 0.0
            self._release_reserved()
            return grant.wait

    async def _try(self, count: int, spare: int) -> tuple[int, float]:
        """How many may be fetched now, and in how many seconds to try again if none."""
        if not self._reserved:
            grant = await self._ask(count, spare)
            if not grant.granted:
                return 0, grant.wait
        if not self.has_rate:
            return min(self._reserved, count + spare), 0.0
        wait = self._next_start()
        self._reserved = min(self._reserved, len(self._starts))
        if wait is None or wait > 0:
            return 0, wait or 0.0
        now = time.monotonic()
        return min(sum(start.after <= now for start in self._starts), self._reserved, count), 0.0

    def _next_start(self) -> float | None:
        """Seconds until the next granted token is valid; None if there is none."""
        now = time.monotonic()
        while self._starts and self._starts[0].before < now:
            self._unused.append(self._starts.popleft())
        return self._starts[0].after - now if self._starts else None

    async def _ask(self, count: int, spare: int = 0) -> TokenGrant:
        """Request slots.

        One request after the other: the server would believe an older count that arrives later.
        """
        async with self._speaking:
            used_slots = self._used_slots()
            grant = await self._send(count, used_slots=used_slots, spare=spare)
            self.spare_granted = max(grant.granted - count, 0) if count else 0
            self._reported_slots = used_slots + grant.granted if self.has_max_active else 0
            self._reserved += grant.granted
            self._doubt = False
            return grant

    async def _send(
        self, count: int, *, used_slots: int | None, within: float | None = None, spare: int = 0
    ) -> TokenGrant:
        # Never sent twice: that would return two tokens for one.
        unused, self._unused = self._unused, []
        self._queued_on_server = True
        request = TokenRequest(self._worker, count, used_slots, within, spare, unused)
        grant = await limits.acquire(self._store, self._settings, request)
        self._starts.extend(grant.starts)
        return grant
