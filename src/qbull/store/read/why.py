"""Why: read everything that can keep a job from running. core/why.py explains what it means."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from qbull.config import QueueSettings
from qbull.core.flow import NEVER_DUE_MS, Dependency
from qbull.core.layout import index_in_generation
from qbull.core.record import holds_lane, lane_of, to_datetime
from qbull.core.why import MAX_AHEAD_COUNT, BlockedLoop, JobFacts, LaneHolder, LimitWait, Why, explain
from qbull.errors import NotFound
from qbull.store.names import CONSUMER_GROUP, ready_stream
from qbull.store.read import lane
from qbull.store.read.inspect import StoredJob, counts
from qbull.store.read.parked import demands_of, parking_of
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs import live_settings, shared_limits
from qbull.store.verbs.flow_messages import awaited_by, dependencies_of
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.workers import RegisteredWorker, ServedQueue


@idempotent
async def explain_job(store: Store, declared: QueueSettings, partition: Partition, found: StoredJob) -> Why:
    """Explain why a job does not run. Reads a bounded amount and changes nothing."""
    facts = JobFacts(declared.name, found.state, found.body())
    if found.ending is not None:
        facts = replace(facts, error=found.ending.error, finished_ms=found.finished_ms or 0)
        return explain(found.id, facts)
    facts = await _queue_facts(store, declared, partition, facts)
    if found.state == "active":
        facts = await _delivery_facts(store, partition, found, facts)
    elif found.state == "delayed":
        facts = replace(facts, due_ms=found.due_ms or 0, holds_lane=holds_lane(found.record))
        if facts.body.suspended:
            called = await awaited_by(partition, found.id.encode("utf-8", "surrogateescape"))
            facts = replace(facts, called=tuple(dependency for _, dependency in called))
        elif facts.due_ms >= NEVER_DUE_MS:
            facts = replace(facts, awaits=await _flow_facts(partition, found))
    else:
        facts = await _lane_facts(store, partition, found, facts)
    return explain(found.id, facts)


async def _queue_facts(
    store: Store, declared: QueueSettings, partition: Partition, facts: JobFacts
) -> JobFacts:
    now = await live_settings.read(store, declared)
    settings, paused, rate = now.settings, now.changed.get(live_settings.PAUSED_SETTING), now.settings.rate
    window = (rate.count, rate.window_ms) if rate is not None else (0, 0)
    used_slots, next_start_ms, now_ms = await store.server.script(
        "limit_usage", store.names.queue(facts.queue), *window
    )
    members = await store.workers()
    serving = {
        worker: its
        for worker, member in members.items()
        if (its := member.queues.get(facts.queue)) is not None and not its.leaving
    }
    served = list(serving.values())
    readers = [worker for worker, its in serving.items() if partition.number in its.partitions]
    blocked = [worker for worker in readers if members[worker].blocked]
    rests_until = to_datetime(now_ms) + timedelta(seconds=now.held)
    return replace(
        facts,
        paused=(paused.by, paused.at) if paused is not None else None,
        held=(rests_until, now.held_because) if now.held > 0 else None,
        serving=len(served),
        reading=len(readers) - len(blocked),
        blocked=_blocked_loop(blocked[0], members[blocked[0]]) if blocked else None,
        partition=str(index_in_generation(partition.number)),
        tasks=frozenset(task for its in served for task in its.tasks),
        demand=demands_of(served).get(facts.body.task, ""),
        slots=sum(its.concurrency for its in served),
        active=await _active_count(store, declared, served),
        rate=rate,
        lane_rate=settings.lane.rate if settings.lane is not None else None,
        next_start_ms=next_start_ms,
        now_ms=now_ms,
        max_active=settings.max_active,
        used_slots=used_slots,
    )


async def _delivery_facts(store: Store, partition: Partition, found: StoredJob, facts: JobFacts) -> JobFacts:
    place = await partition.server.call("HGET", partition.base + "index", found.id)
    if place is not None and place[:1] == b"l":  # the first of a train
        place = await partition.server.call("HGET", partition.base + "trains", lane_of(found.record))
        place = None if place is None else b"r" + place.partition(b" ")[0]
    idle = 0
    if place is not None and place[:1] == b"r":
        stream, entry = ready_stream(partition.base, place[1:2].decode()), place[2:]
        pending = await partition.server.call("XPENDING", stream, CONSUMER_GROUP, entry, entry, 1)
        idle = pending[0][2] if pending else 0
    stopping = any(mark.id == found.id.encode() for mark in await partition.cancel_marks())
    worker = found.worker or "?"
    member = (await store.workers()).get(worker)
    return replace(
        facts,
        worker=worker,
        since_ms=facts.now_ms - idle,
        stopping=stopping,
        blocked=_blocked_loop(worker, member) if member is not None and member.blocked else None,
    )


def _blocked_loop(worker: str, member: RegisteredWorker) -> BlockedLoop:
    return BlockedLoop(worker, to_datetime(member.blocked_since_ms), tuple(member.blocked_by))


async def _flow_facts(partition: Partition, found: StoredJob) -> tuple[Dependency, ...]:
    """The jobs of its flow that it still waits for; first those that did not complete and may be retried."""
    left = [(letter, told) for letter, told in await dependencies_of(partition, found.id) if letter != "c"]
    return tuple(told for _, told in sorted(left, key=lambda one: one[0] == "w"))


async def _lane_facts(store: Store, partition: Partition, found: StoredJob, facts: JobFacts) -> JobFacts:
    """The facts about a job behind others of its lane, or in a ready stream."""
    if not found.entry_ms:
        parking = await parking_of(partition, found.id, facts.body.task)
        if parking is not None and parking.limit is not None:
            return replace(facts, limited=await _limit_facts(store, parking.since, *parking.limit))
        if parking is not None:
            return replace(facts, parked=parking.since, parked_for=parking.kind)
    its_lane = lane_of(found.record)
    if its_lane and not found.entry_ms:
        line = await lane.lane_status(partition, its_lane, 0, found.id)
        if line.holder != found.id:
            return replace(
                facts, front=LaneHolder(line.holder, line.holder_state, line.worker, line.position)
            )
    place = await partition.server.call("HGET", partition.base + "index", found.id)
    if place is None or place[:1] != b"r":
        return facts
    return replace(facts, before=await lane.count_ahead(partition, place[1:], MAX_AHEAD_COUNT))


async def _limit_facts(store: Store, since: datetime, limit: str, key: str) -> LimitWait:
    try:
        found = await shared_limits.usage(store, limit, key)
    except NotFound:  # no worker uses it any more
        return LimitWait(limit, key, since)
    return LimitWait(limit, key, since, found.of_key if key else found.status)


async def _active_count(store: Store, settings: QueueSettings, served: list[ServedQueue]) -> int:
    """The deliveries that workers hold, in all partitions that they read."""
    numbers = {number for serving in served for number in serving.partitions}
    partitions = [store.partition(settings, number) for number in sorted(numbers)]
    return sum(one.active for one in await counts(partitions))
