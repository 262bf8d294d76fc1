"""One partition of a queue: each verb is names, call, typed answer. The atomic change itself is in lua/<verb>.lua.

Every verb may be sent twice: a second enqueue finds the ids, a second settle finds the fence gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qbull.config import QueueSettings
from qbull.core.job import CRASH_LIMIT
from qbull.store.connect import ErrorReply, Server
from qbull.store.names import DEFAULT_BAND, GROUP, RETURNED, ready

BATCH = 500
"""Jobs in one call at most: it bounds how long a script keeps the server from others."""


class NewJob(NamedTuple):
    """`when` is milliseconds from now, or "@" and a moment in milliseconds."""

    id: str
    when: int | str
    record: bytes


class Outcomes:
    """What became of some jobs of a partition, to be written down in one call."""

    __slots__ = ("count", "ended", "others", "singles", "trains")

    def __init__(self) -> None:
        self.count = 0
        self.singles: dict[str, list[bytes]] = {}
        self.trains: dict[bytes, list[bytes]] = {}
        self.ended: set[bytes] = set()
        self.others: list[bytes | str | int] = []

    def done(self, band: str, entry: bytes, id: bytes, sealed: bytes) -> None:
        """A job that was alone in its entry is done."""
        self.count += 1
        singles = self.singles.get(band)
        if singles is None:
            singles = self.singles[band] = []
        singles += (entry, id, sealed)

    def done_in_train(self, place: bytes, id: bytes, last: bool, sealed: bytes) -> None:
        self.count += 1
        train = self.trains.get(place)
        if train is None:
            train = self.trains[place] = []
        train += (id, sealed)
        if last:
            self.ended.add(place)

    def dead(self, place: bytes, id: bytes, last: bool, record: bytes, seal: bytes) -> None:
        self.count += 1
        self.others += (place, id, "dead", "1" if last else "0", record, seal)

    def delay(self, place: bytes, id: bytes, last: bool, record: bytes, milliseconds: int) -> None:
        self.count += 1
        self.others += (place, id, "delay", "1" if last else "0", record, milliseconds)

    def arguments(self) -> list[bytes | str | int]:
        singles: list[bytes | str | int] = []
        for band, jobs in self.singles.items():
            singles += (band, len(jobs) // 3, *jobs)
        members: list[bytes | str | int] = []
        for place, train in self.trains.items():
            members += (place, "1" if place in self.ended else "0", len(train) // 2, *train)
        return [len(singles), len(members), *singles, *members, *self.others]


@dataclass(frozen=True, slots=True)
class Reclaimed:
    deliveries: int
    dead: int
    more: bool


class Partition:
    def __init__(self, server: Server, base: str, number: int, settings: QueueSettings) -> None:
        self.server = server
        self.base = base
        self.number = number
        self.settings = settings
        keep = settings.keep
        self._limit = settings.lane_limit
        self._halt = int(settings.on_failed == "halt")
        self._keep_completed = (_count(keep.completed), _ms(keep.completed_for))
        self._keep_failed = (_count(keep.failed), _ms(keep.failed_for))

    async def enqueue(self, jobs: Sequence[NewJob]) -> set[int]:
        """Add a batch; answers with the positions of those whose id was there already."""
        flat = [argument for job in jobs for argument in job]
        return set(await self.server.script("enqueue", self.base, self._limit, *flat))

    async def bands(self) -> list[str]:
        """The ready streams that may have jobs, the most urgent first."""
        used = {
            RETURNED,
            DEFAULT_BAND,
            *(band.decode() for band in await self.server.call("SMEMBERS", self.base + "bands")),
        }
        return sorted(used)

    async def settle(self, outcomes: Outcomes) -> list[bytes]:
        """Write down a batch of outcomes; answers with the ids of those that were stale and changed nothing."""
        stale: list[bytes] = await self.server.script(
            "settle",
            self.base,
            self._limit,
            self._halt,
            *self._keep_completed,
            *self._keep_failed,
            *outcomes.arguments(),
        )
        return stale

    async def promote(self, most: int = BATCH) -> tuple[int, float | None]:
        """Move what is due to ready, drop what is too old; answers with how many, and the seconds until the next is due."""
        moved, wait_ms = await self.server.script(
            "promote", self.base, self._limit, most, self._keep_completed[1], self._keep_failed[1]
        )
        return moved, None if wait_ms < 0 else wait_ms / 1000

    async def release(self, places: Sequence[bytes]) -> int:
        """Give back deliveries that will not be run to their end here; answers with the number of jobs."""
        jobs: int = await self.server.script("release", self.base, *places)
        return jobs

    async def reclaim(
        self, worker: str, seal: bytes, started: Sequence[bytes] | None = None, silent: float = 0.0
    ) -> Reclaimed:
        """Take back the deliveries of a dead worker; `started` is what was running.

        Where nobody saw that it is None, and what was handed over within the last `silent` seconds is not suspected.
        """
        blind_ms = int(silent * 1000) if started is None else -1
        taken, dead, more = await self.server.script(
            "reclaim", self.base, self._limit, self._halt, *self._keep_failed,
            worker, 100, CRASH_LIMIT, blind_ms, seal, *(started or ()),
        )  # fmt: skip
        return Reclaimed(taken, dead, bool(more) or taken > 0)

    async def holds(self, id: bytes, place: bytes) -> bool:
        """Is this delivery still the one that counts?"""
        return bool(await self.server.call("HGET", self.base + "index", id) == b"r" + place)

    async def mark_alone(self, job: bytes, place: bytes) -> None:
        """A suspect is about to run: should it take the worker down, this mark is the proof."""
        await self.server.call("SADD", self.base + "extras", job)
        await self.server.call("HSET", f"{self.base}job:".encode() + job, "alone", place)

    async def lease(self, worker: str, living: Sequence[str]) -> int:
        """Take the partition for this worker alone, where none of the living has it; the epoch, or 0."""
        epoch: int = await self.server.script(
            "lease", self.base, worker, *(name for name in living if name != worker)
        )
        return epoch

    async def unlease(self, worker: str) -> None:
        await self.server.script("unlease", self.base, worker)

    async def ensure_groups(self, bands: Sequence[str]) -> None:
        for band in bands:
            try:
                await self.server.call("XGROUP", "CREATE", ready(self.base, band), GROUP, "0", "MKSTREAM")
            except ErrorReply as error:
                if error.code != "BUSYGROUP":
                    raise


def _count(value: int | None) -> int:
    return -1 if value is None else value


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else int(seconds * 1000)
