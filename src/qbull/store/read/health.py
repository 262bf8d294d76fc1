"""Health facts: read the state from which core/health.py finds problems.

The number of calls depends on the queues and partitions only: three for each partition, in pipelines, and a
few for each queue. No call depends on the number of jobs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from qbull.config import QueueSettings
from qbull.core.health import DEFAULT_HEALTH_LIMITS, HealthLimits
from qbull.core.health_facts import (
    BlockedLane,
    HaltedLanes,
    HealthFacts,
    LateSchedule,
    LostWorker,
    MinuteOutcomes,
    PartitionFacts,
    Pause,
    QueueFacts,
    ServingFacts,
    UnknownTask,
)
from qbull.errors import NotFound, UnreadableSettings
from qbull.store.connection.fan_out import run_scripts
from qbull.store.read.inspect import Counts, counts, server_time
from qbull.store.read.limits import limit_facts
from qbull.store.read.minutes import last_minutes
from qbull.store.read.parked import parked_tasks
from qbull.store.store import Store
from qbull.store.verbs import live_settings
from qbull.store.verbs.alerts import ALERT_QUEUE, FAILURE_WINDOW_MINUTES, read_known_problems
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.schedules import SCHEDULE_BATCH_SIZE, ScheduleLocation, ScheduleStore
from qbull.store.verbs.workers import RegisteredWorker, unpack_worker

MAX_CONCURRENT_QUEUES = 4
"""Queues that are read concurrently."""
MAX_READ_DELAYED_JOBS = 256
"""Delayed jobs of a partition that are searched for lanes behind a retry."""
MAX_READ_HALTING_ENTRIES = 50
"""Entries of a partition's dead letters that are searched for halted lanes."""
MAX_LATE_PARTITIONS = 20
"""Partitions of a queue whose late schedules are read."""


class HealthReading(msgspec.Struct, frozen=True):
    """The facts, and the counts of each queue."""

    facts: HealthFacts
    counts: Mapping[str, Counts]


async def read_health(
    store: Store,
    queues: Sequence[QueueSettings],
    limits: HealthLimits = DEFAULT_HEALTH_LIMITS,
    unreadable: Iterable[str] = (),
) -> HealthReading:
    """Read the facts about these queues and about all workers.

    Args:
        store: The server.
        queues: The queues.
        limits: Decide how much is read.
        unreadable: Further queues, whose settings cannot be read.
    """
    members = await store.workers()
    turn = asyncio.Semaphore(MAX_CONCURRENT_QUEUES)
    not_read = set(unreadable)

    async def one(settings: QueueSettings) -> tuple[QueueFacts, Counts] | None:
        async with turn:
            try:
                return await read_queue(store, settings, members, limits)
            except UnreadableSettings:
                not_read.add(settings.name)
                return None

    found = [read for read in await asyncio.gather(*map(one, queues)) if read is not None]
    readable = [settings for settings in queues if settings.name not in not_read]
    return HealthReading(
        HealthFacts(
            int(await server_time(store) * 1000),
            tuple(facts for facts, _ in found),
            tuple(sorted(not_read)),
            {id: min(starts) for id, member in members.items() if (starts := _starts(member))},
            await _lost_workers(store),
            await read_known_problems(store),
            await limit_facts(store, readable, members),
        ),
        {facts.name: counted for facts, counted in found},
    )


async def registered_queues(store: Store) -> tuple[list[QueueSettings], list[str]]:
    """The settings of all queues on the server, and the names of those whose settings cannot be read."""
    found, unreadable = [], []
    for name in await store.queues():
        try:
            found.append(await store.settings(name))
        except UnreadableSettings:
            unreadable.append(name)
        except NotFound:
            # It was removed meanwhile.
            continue
    return found, unreadable


async def read_queue(
    store: Store,
    settings: QueueSettings,
    members: Mapping[str, RegisteredWorker],
    limits: HealthLimits = DEFAULT_HEALTH_LIMITS,
) -> tuple[QueueFacts, Counts]:
    """The facts about one queue, and its counts."""
    registered, layout = await store.registered(settings)
    live = await live_settings.read(store, registered)
    numbers = [number for generation in layout.generations for number in generation.numbers]
    partitions = [store.partition(registered, number) for number in numbers]
    counted = await counts(partitions)
    old_ms = int(limits.unread_after * 1000)
    letters = MAX_READ_HALTING_ENTRIES if registered.on_failed == "halt" else 0
    replies = await run_scripts(
        partitions[0].server,
        "health_report",
        [(one.base, old_ms, MAX_READ_DELAYED_JOBS, letters) for one in partitions],
    )
    total = sum(counted, Counts())
    total = replace(total, totals=layout.in_all(total.totals), paused=live.paused)
    pause = live.changed.get(live_settings.PAUSED_SETTING)
    now, keep = live.settings, live.settings.keep
    facts = QueueFacts(
        settings.name,
        stale_after=registered.alert.stale_after if registered.alert is not None else None,
        limited=live.held > 0 or now.rate is not None or now.max_active is not None,
        pause=Pause(int(pause.at.timestamp() * 1000), pause.by) if pause is not None else None,
        partitions=tuple(_partition(*one) for one in zip(partitions, counted, replies, strict=True)),
        workers=_serving(members, settings.name),
        blocked=tuple(
            BlockedLane(since_ms, behind)
            for reply in replies
            for since_ms, behind in zip(reply[6][::2], reply[6][1::2], strict=True)
        ),
        halted=_halted(replies),
        late=await _late(store, partitions, replies, limits),
        unknown=tuple(
            UnknownTask(parked.task, parked.jobs, int(parked.since.timestamp() * 1000), parked.demand)
            for parked in await parked_tasks(store, registered)
            if not parked.known
        ),
        minutes=await _minutes(partitions),
        kept=None if keep.completed is None else keep.completed * layout.partitions,
        kept_seconds=keep.completed_for,
        succeeded=total.totals.get("completed", 0),
        failed=total.totals.get("failed", 0) + total.totals.get("retried", 0),
    )
    return facts, total


def _partition(partition: Partition, counted: Counts, reply: Sequence[Any]) -> PartitionFacts:
    _, due, oldest_ms, deliveries, readers, owner, *_ = reply
    idle_ms: dict[str, int] = {}
    for worker, idle in zip(readers[::2], readers[1::2], strict=True):
        idle_ms[worker.decode()] = min(idle, idle_ms.get(worker.decode(), idle))
    held = Counter[str]()
    for worker, number in zip(deliveries[::2], deliveries[1::2], strict=True):
        held[worker.decode()] += number
    return PartitionFacts(
        partition.number,
        counted.waiting + due,
        oldest_ms or None,
        idle_ms,
        held,
        owner.decode() or None,
    )


def _serving(members: Mapping[str, RegisteredWorker], queue: str) -> dict[str, ServingFacts]:
    return {
        id: ServingFacts(serving.concurrency, frozenset(serving.partitions), serving.since, member.blocked)
        for id, member in members.items()
        if (serving := member.queues.get(queue)) is not None and not serving.leaving
    }


def _halted(replies: Sequence[Sequence[Any]]) -> HaltedLanes:
    since = [reply[9] for reply in replies if reply[9]]
    return HaltedLanes(
        sum(reply[7] for reply in replies), sum(reply[8] for reply in replies), min(since, default=0)
    )


async def _late(
    store: Store, partitions: Sequence[Partition], replies: Sequence[Sequence[Any]], limits: HealthLimits
) -> tuple[LateSchedule, ...]:
    """The schedules that should have fired. Their plans are read only if one is late."""
    schedules, found = ScheduleStore(store), list[LateSchedule]()
    late = [
        partition
        for partition, reply in zip(partitions, replies, strict=True)
        if reply[10] and reply[0] - reply[10] > limits.overdue_after * 1000
    ]
    for partition in late[:MAX_LATE_PARTITIONS]:
        location = ScheduleLocation(partition.settings.name, partition.number)
        look = await schedules.read(location, (), due=SCHEDULE_BATCH_SIZE)
        for name, plan in look.plans.items():
            schedule = plan.schedule
            if schedule is None or plan.next_ms is None or plan.paused_ms is not None:
                continue
            if schedule.catch_up != "all":
                # With "all", a run waits for the one before it: it is late on purpose.
                found.append(LateSchedule(name, schedule.due(plan.next_ms)))
    return tuple(found)


async def _minutes(partitions: Sequence[Partition]) -> tuple[MinuteOutcomes, ...]:
    return tuple(
        MinuteOutcomes(one.at_ms, one.completed, one.failed + one.retried, one.enqueued)
        for one in await last_minutes(partitions, FAILURE_WINDOW_MINUTES)
    )


class LostRegistration(NamedTuple):
    """A worker that was lost at a time within a day, and its last registration."""

    worker: str
    at_ms: int
    member: RegisteredWorker


async def lost_registrations(store: Store) -> list[LostRegistration]:
    """The workers that were lost within a day, without those that only send alerts."""
    flat = await store.server.script("lost_workers", store.names.app)
    found = [
        LostRegistration(worker.decode(), at_ms, unpack_worker(member))
        for at_ms, worker, member in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    ]
    return [one for one in found if set(one.member.queues) != {ALERT_QUEUE.name}]


async def _lost_workers(store: Store) -> tuple[LostWorker, ...]:
    return tuple(
        LostWorker(one.worker, one.member.host, one.at_ms) for one in await lost_registrations(store)
    )


def _starts(member: RegisteredWorker) -> list[int]:
    """When the worker started to read each of its partitions."""
    return [since_ms for serving in member.queues.values() for since_ms in serving.since.values()]
