"""How long partitions are unread while workers join, leave and die.

The bench looks at the registry, in which each worker has the partitions that it reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from bench.server import open_server_on_loopback
from bench.simulated import PREFIX, QUEUE, Crowd, SimulatedWorkers
from qbull.core.sharing import unassigned_partitions
from qbull.store.store import Store
from qbull.store.verbs.workers import RegisteredWorker

WATCH_SECONDS = 0.01
WATCH_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Shared:
    """The workers that are to read all partitions: so many, whose ids start with one of these names.

    Args:
        names: the names of their crowds.
        workers: how many of them are to be registered.
        even: whether each must have its even share.
    """

    names: tuple[str, ...]
    workers: int
    even: bool = False

    def of(self, registered: Mapping[str, RegisteredWorker]) -> dict[str, list[int]]:
        """What each of them reads."""
        return {
            id: serving.partitions
            for id, member in registered.items()
            if id.startswith(self.names)
            and (serving := member.queues.get(QUEUE)) is not None
            and not serving.leaving
        }

    def is_reached(self, shares: Mapping[str, Collection[int]], partitions: int) -> bool:
        if len(shares) != self.workers:
            return False
        sizes = [len(share) for share in shares.values()]
        is_even = max(sizes) - min(sizes) <= 1 and sum(sizes) == max(partitions, self.workers)
        return is_even or not self.even


@dataclass(frozen=True)
class Watched:
    """Seconds until the partitions were shared; from when on all workers were registered; and the longest time that a
    partition was unread."""

    seconds: float
    registered_seconds: float
    unread_seconds: float


def watch(
    url: str, partitions: int, shared: Shared, timeout_seconds: float = WATCH_TIMEOUT_SECONDS
) -> Watched:
    """Look at the registry until all partitions are read as they should be."""
    return asyncio.run(_watch(url, partitions, shared, timeout_seconds))


async def _watch(url: str, partitions: int, shared: Shared, timeout_seconds: float) -> Watched:
    store = Store(url, PREFIX)
    began = time.monotonic()
    unread_since: dict[int, float] = {}
    registered = longest = 0.0
    try:
        while True:
            shares = shared.of(await store.workers())
            passed = time.monotonic() - began
            unread = unassigned_partitions(partitions, shares.values())
            unread_since = {number: unread_since.get(number, passed) for number in unread}
            longest = max([longest, *(passed - since for since in unread_since.values())])
            if len(shares) == shared.workers and not registered:
                registered = passed
            if not unread and shared.is_reached(shares, partitions):
                return Watched(passed, registered, longest)
            if passed > timeout_seconds:
                raise TimeoutError(
                    f"{len(unread)} of {partitions} partitions are unread by {len(shares)} workers "
                    f"after {timeout_seconds:g} s"
                )
            await asyncio.sleep(WATCH_SECONDS)
    finally:
        await store.close()


def sharing_figures(workers: int, partitions: int, min_idle: float) -> dict[str, float]:
    """So many workers stay. As many join and leave, and as many join and die."""
    stay = Crowd("stay", workers, partitions, min_idle)
    alone, together = Shared(("stay",), workers), Shared(("stay", "join", "die"), 2 * workers, even=True)
    with open_server_on_loopback() as server, SimulatedWorkers(server.url, stay) as staying:
        staying.wait_until_ready()
        watch(server.url, partitions, replace(alone, even=True))
        with SimulatedWorkers(server.url, replace(stay, name="join")) as joining:
            joined = watch(server.url, partitions, together)
            joining.wait_until_ready()
            joining.stop()
            left = watch(server.url, partitions, replace(alone, even=True))
        with SimulatedWorkers(server.url, replace(stay, name="die")) as dying:
            dying.wait_until_ready()
            watch(server.url, partitions, together)
            dying.kill()
            died = watch(server.url, partitions, alone)
    return {
        "join_seconds": joined.seconds - joined.registered_seconds,
        "join_unread_seconds": joined.unread_seconds,
        "leave_seconds": left.seconds,
        "leave_unread_seconds": left.unread_seconds,
        "die_seconds": died.seconds,
    }
