"""Why: look at all that can stand in the way of a job. What it means is said in core/why.py."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from qbull.config import QueueSettings
from qbull.core.flow import FAR_MS, Told
from qbull.core.layout import place_of
from qbull.core.record import holds_lane, lane_of, moment
from qbull.core.why import MOST, Facts, Front, Why, explain
from qbull.store.names import GROUP, ready
from qbull.store.read import lane
from qbull.store.read.inspect import Found, counts
from qbull.store.store import Store
from qbull.store.verbs import live_settings
from qbull.store.verbs.flows import awaited
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.workers import Serving


async def ask(store: Store, declared: QueueSettings, partition: Partition, found: Found) -> Why:
    """A bounded number of looks; they change nothing."""
    facts = Facts(declared.name, found.state, found.body())
    if found.ending is not None:
        facts = replace(facts, error=found.ending.error, finished_ms=found.finished_ms or 0)
        return explain(found.id, facts)
    facts = await _of_the_queue(store, declared, partition, facts)
    if found.state == "active":
        facts = await _of_the_delivery(partition, found, facts)
    elif found.state == "delayed":
        facts = replace(facts, due_ms=found.due_ms or 0, holds_lane=holds_lane(found.record))
        if facts.due_ms >= FAR_MS:
            facts = replace(facts, awaits=await _of_the_flow(partition, found))
    else:
        facts = await _of_the_line(partition, found, facts)
    return explain(found.id, facts)


async def _of_the_queue(store: Store, declared: QueueSettings, partition: Partition, facts: Facts) -> Facts:
    now = await live_settings.read(store, declared)
    settings, paused, rate = now.settings, now.changed.get(live_settings.PAUSED), now.settings.rate
    window = (rate.count, rate.window_ms) if rate is not None else (0, 0)
    places, next_start_ms, now_ms = await store.server.script(
        "limits", store.names.queue(facts.queue), *window
    )
    served = [
        serving
        for member in (await store.workers()).values()
        if (serving := member.queues.get(facts.queue)) is not None and not serving.leaving
    ]
    rests_until = moment(now_ms) + timedelta(seconds=now.held)
    return replace(
        facts,
        paused=(paused.by, paused.at) if paused is not None else None,
        held=(rests_until, now.held_because) if now.held > 0 else None,
        serving=len(served),
        reading=sum(partition.number in serving.partitions for serving in served),
        partition=str(place_of(partition.number)),
        tasks=frozenset(task for serving in served for task in serving.tasks),
        slots=sum(serving.concurrency for serving in served),
        active=await _active(store, declared, served),
        rate=rate,
        lane_rate=settings.lane.rate if settings.lane is not None else None,
        next_start_ms=next_start_ms,
        now_ms=now_ms,
        max_active=settings.max_active,
        places=places,
    )


async def _of_the_delivery(partition: Partition, found: Found, facts: Facts) -> Facts:
    place = await partition.server.call("HGET", partition.base + "index", found.id)
    if place is not None and place[:1] == b"l":  # the first of a train
        place = await partition.server.call("HGET", partition.base + "trains", lane_of(found.record))
        place = None if place is None else b"r" + place.partition(b" ")[0]
    idle = 0
    if place is not None and place[:1] == b"r":
        stream, entry = ready(partition.base, place[1:2].decode()), place[2:]
        pending = await partition.server.call("XPENDING", stream, GROUP, entry, entry, 1)
        idle = pending[0][2] if pending else 0
    stopping = any(mark.id == found.id.encode() for mark in await partition.marks())
    return replace(facts, worker=found.worker or "?", since_ms=facts.now_ms - idle, stopping=stopping)


async def _of_the_flow(partition: Partition, found: Found) -> tuple[Told, ...]:
    """Those that it still waits for; first those that did not complete and may be retried."""
    left = [(letter, told) for letter, told in await awaited(partition, found.id) if letter != "c"]
    return tuple(told for _, told in sorted(left, key=lambda one: one[0] == "w"))


async def _of_the_line(partition: Partition, found: Found, facts: Facts) -> Facts:
    """Behind others of its lane, or in front of the workers."""
    its_lane = lane_of(found.record)
    if its_lane and not found.entry_ms:
        line = await lane.look(partition, its_lane, 0, found.id)
        if line.holder != found.id:
            return replace(facts, front=Front(line.holder, line.holder_state, line.worker, line.position))
    place = await partition.server.call("HGET", partition.base + "index", found.id)
    if place is None or place[:1] != b"r":
        return facts
    return replace(facts, before=await lane.ahead(partition, place[1:], MOST))


async def _active(store: Store, settings: QueueSettings, served: list[Serving]) -> int:
    """Deliveries that workers have, of all partitions that they read."""
    numbers = {number for serving in served for number in serving.partitions}
    partitions = [store.partition(settings, number) for number in sorted(numbers)]
    return sum(one.active for one in await counts(partitions))
