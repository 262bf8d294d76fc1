"""Events: the ends of jobs, for callers that iterate over them.

They are read from the finished jobs on the server, a page at a time, when the caller asks for the next one.
Each event has a place: a time up to which all earlier events were yielded. A caller that continues from a
place misses nothing, and may see some events twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from qbull.config import QueueSettings
from qbull.core.digits import whole_number
from qbull.core.record import State, to_datetime
from qbull.errors import ArgumentsError
from qbull.produce.client import Client
from qbull.store.completions import EndListener
from qbull.store.read.finished_since import FinishedCursor, FinishedJob, finished_since, server_times
from qbull.store.verbs.partition import Partition

EVENT_RESCAN_SECONDS = 5.0
"""Seconds between two reads of all partitions, in case a message was lost."""


@dataclass(frozen=True, slots=True)
class Event:
    """A job has ended.

    Args:
        queue: its queue.
        id: its id.
        task: the name of its task.
        state: completed, failed or cancelled.
        error: the reason of a failure.
        at: when it ended.
        place: where to continue: `events(after=event.place)`.
    """

    queue: str
    id: str
    task: str
    state: State
    error: str | None
    at: datetime
    place: str


async def follow_events(
    client: Client, queues: Sequence[QueueSettings], after: str | datetime | None
) -> AsyncGenerator[Event, None]:
    """The events of these queues from a place or a time on; from now on if None."""
    reader = _EventReader(client, queues, _moment_of(after))
    with client.results.ends() as ends:
        await client.store.retrying(client.store.open)
        while True:
            looked = time.monotonic()
            ends.clear()
            while True:
                found, more = await reader.look(ends)
                for event in found:
                    yield event
                if not more:
                    break
            with suppress(TimeoutError):
                async with asyncio.timeout(looked + EVENT_RESCAN_SECONDS - time.monotonic()):
                    await ends.wait()


class _EventReader:
    def __init__(self, client: Client, queues: Sequence[QueueSettings], since_ms: int | None) -> None:
        self._client = client
        self._queues = queues
        self._low = since_ms
        self._cursors: dict[str, FinishedCursor] = {}

    async def look(self, ends: EndListener) -> tuple[list[Event], bool]:
        """The next events of all partitions, the oldest first, and whether there are more."""
        low, lowest = self._low, None
        found: list[tuple[str, FinishedJob]] = []
        more = False
        all_of_them = [(one, await self._client.router.partitions(one)) for one in self._queues]
        everywhere = [partition for _, partitions in all_of_them for partition in partitions]
        # Fix the starting point before listening, so that jobs which end in between are included.
        await self._start([one for one in everywhere if one.base not in self._cursors], low)
        for partition in everywhere:
            await ends.watch(partition)
        for settings, partitions in all_of_them:
            reads = [(partition, self._cursors[partition.base]) for partition in partitions]
            for said in await finished_since(reads, oldest_first=True):
                found += [(settings.name, one) for one in said.finished]
                more = more or said.cut
                lowest = said.reached_ms if lowest is None else min(lowest, said.reached_ms)
        self._low = max(lowest or 0, low or 0)
        place = str(low if low is not None else self._low)
        found.sort(key=lambda one: one[1].at_ms)
        return [_event(queue, one, place) for queue, one in found], more

    async def _start(self, partitions: Sequence[Partition], low: int | None) -> None:
        """Start reading new partitions; one that appears later is read from the last yielded event on."""
        if not partitions:
            return
        now = await server_times(partitions)
        for partition, now_ms in zip(partitions, now, strict=True):
            self._cursors[partition.base] = FinishedCursor.since(now_ms if low is None else low)


def _event(queue: str, one: FinishedJob, place: str) -> Event:
    return Event(queue, one.id, one.task, one.state, one.error, to_datetime(one.at_ms), place)


def _moment_of(after: str | datetime | None) -> int | None:
    if after is None:
        return None
    if isinstance(after, datetime):
        if after.utcoffset() is None:
            raise ArgumentsError(
                f"after={after.isoformat()}: has no time zone; "
                "use an aware datetime, for example datetime.now(UTC)"
            )
        return int(after.timestamp() * 1000)
    moment = whole_number(after) if isinstance(after, str) else None
    if moment is None:
        raise ArgumentsError(f"after={after!r}: give the place of an event, or a time")
    return moment
