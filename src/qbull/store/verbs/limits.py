"""Limits over all workers of a queue: how many jobs each worker may start.

A worker asks for slots (of `max_active`), for starts (of `rate`), or for both. The verbs are
lua/limit_acquire.lua and lua/limit_free_slots.lua.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from qbull.config import QueueSettings
from qbull.core.rate import Rate
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition


class StartToken(NamedTuple):
    """A granted start: not before `after` and not after `before`, on this machine's monotonic clock.

    A job that has left its slot by `before` may take until `latest` to reach the first line of its task.
    `server_ms` names the start on the server.
    """

    after: float
    before: float
    latest: float
    server_ms: int


class TokenGrant(msgspec.Struct, frozen=True):
    granted: int
    starts: list[StartToken]
    """One token for each granted job, if the queue has a rate."""
    wait: float
    """Seconds after which to ask again."""


class TokenRequest(msgspec.Struct, frozen=True):
    """A worker's request to start jobs."""

    worker: str
    count: int
    """The number of jobs."""
    used_slots: int | None
    """The slots that the worker uses. None asks only for starts, for jobs that have their slots."""
    within: float | None = None
    """How many seconds ahead a start may be; by default as far as the rate allows."""
    spare: int = 0
    """The number of jobs beyond `count` that it would hold if slots are left over."""
    unused: Sequence[StartToken] = ()
    """Tokens that were granted before and not used."""

    def arguments(self, settings: QueueSettings) -> list[int]:
        """The arguments of lua/limit_acquire.lua, without the worker."""
        slots = (-1, self.count, 0, 0)
        if self.used_slots is not None:
            slots = (self.used_slots, self.count, self.spare, settings.max_active or 0)
        window = (0, 0, 0)
        if (rate := settings.rate) is not None:
            ahead_ms = rate.ahead_ms if self.within is None else int(self.within * 1000)
            window = (rate.count, rate.window_ms, ahead_ms)
        returned = Counter(token.server_ms for token in self.unused)
        return [*slots, *window, *(part for pair in returned.items() for part in pair)]


async def acquire(store: Store, settings: QueueSettings, request: TokenRequest) -> TokenGrant:
    """Ask for slots and starts of a queue."""
    rate = settings.rate
    sent = time.monotonic()
    granted, wait_ms, *times = await store.server.script(
        "limit_acquire", store.names.queue(settings.name), request.worker, *request.arguments(settings)
    )
    starts = _start_tokens(rate, times, sent) if rate is not None else []
    return TokenGrant(granted, starts, wait_ms / 1000)


def _start_tokens(rate: Rate, times: Sequence[int], sent: float) -> list[StartToken]:
    """The tokens of a grant. The server granted it between sending and now, so `after` counts from now, the
    others from sending.

    Half of the slack is left for the way from a slot to the first line of its task: a thread, a process.
    """
    received = time.monotonic()
    slack = rate.slack
    tokens: list[StartToken] = []
    for in_ms, noted, many in zip(times[::3], times[1::3], times[2::3], strict=True):
        wait = in_ms / 1000
        tokens += [StartToken(received + wait, sent + wait + slack / 2, sent + wait + slack, noted)] * many
    return tokens


async def free_slots(store: Store, queue: str, workers: Sequence[str]) -> None:
    """Free the slots of workers that are gone, and remove them from the waiting workers."""
    if workers:
        await store.server.script("limit_free_slots", store.names.queue(queue), *workers)


async def slot_holders(store: Store, queue: str) -> list[str]:
    """The workers that use slots or wait for some."""
    names = await store.server.call("HKEYS", store.names.queue(queue) + "places")
    return [name.decode() for name in names]


@idempotent
async def lane_starts(partition: Partition, lane: bytes) -> bytes:
    """The starts of a lane in the last window of its rate, as lua/lib/rate.lua logs them; empty if none."""
    log: bytes | None = await partition.server.call("GET", partition.base.encode() + b"rate:" + lane)
    return log or b""
