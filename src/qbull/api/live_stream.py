"""Live stream: events for all connected listeners, from one shared reader that runs only while somebody
listens.

About once a second it reads the counts of all queues and the jobs that have finished. The position of an
event is a time of the server's clock, so a listener that reconnects, even to another process, gets the events
that it missed. Workers do no extra work for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec

from qbull.core.access import in_scope
from qbull.core.record import to_datetime
from qbull.errors import QbullError, ServerError
from qbull.manage.dead_letters import DeadLetterReader
from qbull.queue import Queue
from qbull.store.read.finished_since import (
    FinishedCursor,
    FinishedJob,
    FinishedSince,
    finished_since,
    server_times,
)
from qbull.store.read.inspect import Counts, counts
from qbull.store.store import Store
from qbull.store.verbs.live_settings import is_paused
from qbull.store.verbs.partition import Partition
from qbull.views.queues import LiveStatsView, StatsView
from qbull.views.shape import iso_time, to_plain, view_of

log = logging.getLogger("qbull.api")

EVENT_POLL_SECONDS = 1.0
"""Pause between two polls; longer if a poll is slow, so that polling takes at most a fifth of the time."""
WATCH_SECONDS = 0.5
"""Pause between two checks whether the servers still answer."""
MAX_COUNT_AGE_SECONDS = 30.0
"""Older counts are stale, even if the servers answer."""
CASCADES_WAIT_SECONDS = 0.05
"""How long a poll waits for dead letters to be read; their number follows with the next."""
MAX_PENDING_EVENTS = 500
"""Events buffered for a slow listener. Further ones are dropped, and a gap event reports that."""
MAX_LISTENERS = 200
MAX_CALLER_LISTENERS = 40
"""Streams of one token, or of all sessions of one name, so that nobody locks out others."""
RATE_COUNTERS = ("enqueued", "completed", "failed", "retried")


class StreamEvent(msgspec.Struct, frozen=True):
    """One event. `at` is the position to resume from; 0 if others of the same poll follow.

    `stats` are the counts by queue that `data` has, for listeners who may see only some of them.
    """

    name: str
    data: bytes
    queue: str = ""
    job: str = ""
    at: int = 0
    stats: dict[str, Any] | None = None

    def encoded(self) -> bytes:
        id_line = b"id: %d\n" % self.at if self.at else b""
        return b"%sevent: %s\ndata: %s\n\n" % (id_line, self.name.encode(), self.data)


class EventListener:
    """A listener to all queues or one, and to the progress of some jobs, each given as queue and id.

    With `freshness` it also hears about once a second that the servers answer, and how old the counts are.
    """

    def __init__(
        self,
        queue: str | None,
        watched: frozenset[tuple[str, str]] = frozenset(),
        caller: str = "",
        scope: tuple[str, ...] = (),
        *,
        freshness: bool = False,
    ) -> None:
        self.queue = queue
        self.watched = watched
        self.caller = caller
        self.scope = scope
        self.freshness = freshness
        self._events: deque[StreamEvent] = deque()
        self._has_events = asyncio.Event()
        self._left_out = 0

    def hears(self, queue: str) -> bool:
        """Whether the events of a queue are for this listener."""
        return self.queue in (None, queue) and in_scope(queue, self.scope)

    def push(self, event: StreamEvent) -> None:
        if event.queue and not self.hears(event.queue):
            return
        if event.stats is not None and self.scope:
            event = self.own_stats(event.name, event.stats, event.at)
        if event.name == "progress" and (event.queue, event.job) not in self.watched:
            return
        if len(self._events) >= MAX_PENDING_EVENTS:
            self._left_out += 1
            return
        self._events.append(event)
        self._has_events.set()

    def own_stats(self, name: str, stats: dict[str, Any], at: int) -> StreamEvent:
        """The counts of the queues in the scope of this listener, as an event."""
        own = {queue: counts for queue, counts in stats.items() if in_scope(queue, self.scope)}
        return StreamEvent(name, msgspec.json.encode({"queues": own}), at=at, stats=own)

    def forget_stats(self) -> None:
        """Drop buffered counts: the snapshot already has them."""
        self._events = deque(event for event in self._events if event.name != "stats")

    async def next(self) -> list[StreamEvent]:
        """Wait for the next events."""
        await self._has_events.wait()
        self._has_events.clear()
        events = list(self._events)
        self._events.clear()
        if self._left_out:
            events.append(StreamEvent("gap", msgspec.json.encode({"leftOut": self._left_out})))
            self._left_out = 0
        return events


class EventBroadcaster:
    """Polls the queues and sends events to all listeners. `errors`: whether events may contain job errors."""

    def __init__(
        self,
        store: Callable[[], Store],
        queues: Callable[[], Awaitable[list[Queue]]],
        dead_letters: Callable[[Queue], DeadLetterReader],
        *,
        errors: bool,
    ) -> None:
        self._store = store
        self._queues = queues
        self._dead_letters = dead_letters
        self._errors = errors
        self._ready = asyncio.Event()
        self._listeners: set[EventListener] = set()
        self._reading: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._counted_at: float | None = None
        self._fresh_at = 0.0
        self._cursors: dict[tuple[str, int], FinishedCursor] = {}
        self._shown: dict[str, dict[str, Any]] = {}
        self._totals: dict[str, tuple[float, dict[str, int]]] = {}
        self._watched: dict[tuple[str, str], bytes] = {}
        self._now_ms = 0

    def subscribe(self, listener: EventListener) -> None:
        self._listeners.add(listener)
        for job in listener.watched:
            # The new listener must see it too.
            self._watched.pop(job, None)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
            self._watching = asyncio.create_task(self._watch())

    async def leave(self, listener: EventListener) -> None:
        self._listeners.discard(listener)
        if not self._listeners:
            await self.close()

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def full(self) -> bool:
        return self.listeners >= MAX_LISTENERS

    def is_full_for(self, caller: str) -> bool:
        """Whether this caller has as many streams as one caller may have."""
        return sum(one.caller == caller for one in self._listeners) >= MAX_CALLER_LISTENERS

    async def close(self) -> None:
        running = [task for task in (self._reading, self._watching) if task is not None]
        self._reading = self._watching = None
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self._counted_at = None
        self._ready.clear()
        self._cursors.clear()
        self._shown.clear()
        self._totals.clear()
        self._watched.clear()

    async def snapshot(self, listener: EventListener) -> StreamEvent:
        """The current counts. The events that follow are changes of them."""
        await self._ready.wait()
        return listener.own_stats("snapshot", self._shown, self._now_ms)

    async def since(self, ms: int, listener: EventListener) -> list[StreamEvent]:
        """The jobs that finished since a time, as far as they are retained and fit into one poll."""
        events: list[StreamEvent] = []
        for queue in await self._queues():
            if listener.hears(queue.name):
                partitions = await self._partitions(queue)
                for found in await finished_since(
                    [(partition, FinishedCursor.since(ms)) for partition in partitions]
                ):
                    events += self._events_of(queue.name, found)
        return events

    async def _read(self) -> None:
        while True:
            began = time.monotonic()
            try:
                events = await self._poll()
                self._ready.set()
                self._counted_at = time.monotonic()
                for listener in self._listeners:
                    for event in events:
                        listener.push(event)
                self._tell_fresh(0.0)
            except ServerError as error:
                log.debug("cannot read events: %s", error)
            except QbullError as error:
                log.warning("cannot read events: %s", error)
            await asyncio.sleep(_pause(time.monotonic() - began))

    async def _watch(self) -> None:
        """Check between slow polls whether the servers answer, so that silence is noticed in time."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._counted_at is None or time.monotonic() - self._fresh_at < EVENT_POLL_SECONDS - 0.1:
                continue
            try:
                for primary in await self._store().without_retry.primaries():
                    await primary.call("PING")
            except QbullError as error:
                log.debug("cannot reach a server: %s", error)
                continue
            age = time.monotonic() - self._counted_at
            if age <= MAX_COUNT_AGE_SECONDS:
                self._tell_fresh(age)

    def _tell_fresh(self, age: float) -> None:
        """Tell the listeners that the servers answer, and how many seconds old the counts are."""
        self._fresh_at = time.monotonic()
        data = {"nextMs": round(EVENT_POLL_SECONDS * 1000), "ageMs": round(age * 1000)}
        fresh = StreamEvent("fresh", msgspec.json.encode(data))
        for listener in self._listeners:
            if listener.freshness:
                listener.push(fresh)

    async def _poll(self) -> list[StreamEvent]:
        """All events since the last poll. The last event carries the position to resume from."""
        events: list[StreamEvent] = []
        changed: dict[str, dict[str, Any]] = {}
        now_ms = 0
        for queue in await self._queues():
            partitions = await self._partitions(queue)
            there = await counts(partitions)
            for found in await self._finished_since(queue.name, partitions):
                now_ms = min(now_ms, found.now_ms) if now_ms else found.now_ms
                events += self._events_of(queue.name, found)
            shown = await self._stats(queue, sum(there[1:], there[0]))
            if self._shown.get(queue.name) != shown:
                self._shown[queue.name] = changed[queue.name] = shown
        events += await self._progress()
        self._now_ms = max(now_ms, self._now_ms)
        if changed or events:
            packed = msgspec.json.encode({"queues": changed})
            events.append(StreamEvent("stats", packed, at=self._now_ms, stats=changed))
        return events

    async def _partitions(self, queue: Queue) -> list[Partition]:
        partitions = await queue.app._client().router.partitions(queue.settings)
        return [partition.without_retry for partition in partitions]

    async def _finished_since(self, queue: str, partitions: list[Partition]) -> list[FinishedSince]:
        new = [partition for partition in partitions if (queue, partition.number) not in self._cursors]
        for partition, now_ms in zip(new, await server_times(new), strict=True):  # The past is no event.
            self._cursors[queue, partition.number] = FinishedCursor.since(now_ms)
        return await finished_since(
            [(partition, self._cursors[queue, partition.number]) for partition in partitions]
        )

    def _events_of(self, queue: str, found: FinishedSince) -> list[StreamEvent]:
        events = [self._finished(queue, one) for one in found.finished]
        return [*events, StreamEvent("gap", b"{}", queue)] if found.cut else events

    async def _stats(self, queue: Queue, counted: Counts) -> Any:
        name = queue.name
        cascades = 0
        if counted.failed:
            cascades = (await self._dead_letters(queue).soon(CASCADES_WAIT_SECONDS, counted)).cascades
        paused = await is_paused(self._store().without_retry, name)
        stats = StatsView.of(name, replace(counted, paused=paused))
        now = time.monotonic()
        before, totals = self._totals.get(name, (now, counted.totals))
        seconds = max(now - before, 0.001)
        per_second = {
            what: round(max(counted.totals.get(what, 0) - totals.get(what, 0), 0) / seconds, 2)
            for what in RATE_COUNTERS
        }
        self._totals[name] = now, counted.totals
        has_lanes = queue.settings.lane_limit > 0
        return to_plain(
            view_of(LiveStatsView, stats, has_lanes=has_lanes, per_second=per_second, cascades=cascades)
        )

    async def _progress(self) -> list[StreamEvent]:
        """Progress events of the jobs that somebody listens to."""
        wanted = {job for one in self._listeners for job in one.watched}
        events = []
        queues = {queue.name: queue for queue in await self._queues()} if wanted else {}
        for name, id in wanted:
            queue = queues.get(name)
            info = await queue.job(id).info() if queue is not None else None
            data: dict[str, Any] = {"queue": name, "id": id, "state": None, "progress": None, "attempt": None}
            if info is not None:
                data |= {"state": info.state, "progress": info.progress, "attempt": info.attempt}
                data |= {"done": info.progress_done, "total": info.progress_total}
                data |= {"note": info.progress_note if self._errors else None}
            packed = msgspec.json.encode(data)
            if self._watched.get((name, id)) != packed:
                self._watched[name, id] = packed
                events.append(StreamEvent("progress", packed, name, id))
        self._watched = {key: value for key, value in self._watched.items() if key in wanted}
        return events

    def _finished(self, queue: str, one: FinishedJob) -> StreamEvent:
        data = {
            "queue": queue,
            "id": one.id,
            "task": one.task,
            "state": one.state,
            "error": one.error if self._errors else None,
            "finishedAt": iso_time(to_datetime(one.at_ms)),
        }
        return StreamEvent("job", msgspec.json.encode(data), queue, one.id)


def _pause(took: float) -> float:
    """Seconds until the next poll, after one that took so long."""
    return max(EVENT_POLL_SECONDS - took, 4 * took)
