"""Limits over all workers of a queue: how many jobs each worker may start.

A permit is a place (of `max_active`), a start (of `rate`), or both. The verbs are lua/limit_acquire.lua and
lua/limit_free_slots.lua.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qbull.config import QueueSettings
from qbull.core.rate import Rate
from qbull.store.store import Store


class StartToken(NamedTuple):
    """A granted start: on this machine's steady clock, not before and not after; and its name on the server.

    What has left its slot before `before` may take until `latest` to reach the first line of its task.
    """

    after: float
    before: float
    latest: float
    server_ms: int


@dataclass(frozen=True, slots=True)
class TokenGrant:
    granted: int
    starts: list[StartToken]
    """One token for each granted job, if the queue has a rate."""
    wait: float
    """Seconds after which to ask again."""


async def acquire(
    store: Store,
    settings: QueueSettings,
    worker: str,
    want: int,
    *,
    places: int | None,
    within: float | None = None,
    unused: Iterable[StartToken] = (),
) -> TokenGrant:
    """`places` is how many the worker has in use; None asks for starts alone, for jobs that have their place.

    `within` is how many seconds ahead a start may be; as far as the rate has it where it is not said.
    """
    rate = settings.rate
    max_active = settings.max_active or 0 if places is not None else 0
    returned: dict[int, int] = {}
    for start in unused:
        returned[start.server_ms] = returned.get(start.server_ms, 0) + 1
    sent = time.monotonic()
    granted, wait_ms, *times = await store.server.script(
        "limit_acquire", store.names.queue(settings.name), worker, -1 if places is None else places, want, max_active,
        *((rate.count, rate.window_ms, rate.ahead_ms if within is None else int(within * 1000)) if rate is not None else (0, 0, 0)),
        *(part for pair in returned.items() for part in pair),
    )  # fmt: skip
    starts = _start_tokens(rate, times, sent) if rate is not None else []
    return TokenGrant(granted, starts, wait_ms / 1000)


def _start_tokens(rate: Rate, times: Sequence[int], sent: float) -> list[StartToken]:
    """The server granted them somewhere between sending and now: not before counts from now, not after from
    sending.

    Half of the slack is left for what lies between a slot and the first line of its task: a thread, a
    process.
    """
    received = time.monotonic()
    return [
        StartToken(received + wait, sent + wait + rate.slack / 2, sent + wait + rate.slack, noted)
        for in_ms, noted, many in zip(times[::3], times[1::3], times[2::3], strict=True)
        for wait in (in_ms / 1000,)
        for _ in range(many)
    ]


async def free_slots(store: Store, queue: str, workers: Sequence[str]) -> None:
    """Free the slots of workers that are gone, and remove them from the line of waiting workers."""
    if workers:
        await store.server.script("limit_free_slots", store.names.queue(queue), *workers)


async def slot_holders(store: Store, queue: str) -> list[str]:
    """The workers that use slots or wait for some."""
    names = await store.server.call("HKEYS", store.names.queue(queue) + "places")
    return [name.decode() for name in names]
