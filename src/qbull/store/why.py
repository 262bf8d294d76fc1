"""Why: what stands in the way of a job. Every fact is looked up now; the reasons are in the order in which to deal with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from qbull.core.job import lane_of, moment
from qbull.core.layout import place_of
from qbull.core.route import PARTITION_LANE
from qbull.store import lane, permits
from qbull.store.inspect import Found, count
from qbull.store.live import PAUSED, Live
from qbull.store.partition import Partition
from qbull.store.roster import Member
from qbull.store.store import Store

Code = Literal[
    "finished", "running", "stopping", "paused", "held", "no-worker", "unread", "due", "retry", "halted", "behind", "limit", "rate", "line", "next"
]  # fmt: skip
AHEAD = 100


@dataclass(frozen=True, slots=True)
class Reason:
    """`code` is for programs, `text` for people. `job` is the one that it waits for, `at` until or since when."""

    code: Code
    text: str
    job: str | None = None
    at: datetime | None = None


async def why(store: Store, live: Live, partition: Partition, found: Found) -> list[Reason]:
    """Why a job does not run now; or that it does, or has."""
    if found.finished_ms is not None:
        return [Reason("finished", f"it has {_ended(found)}", at=moment(found.finished_ms))]
    if found.state == "active":
        return await _active(partition, found)
    members = await store.workers()
    reasons = [*_queue_stands_still(live), *_nobody_reads(partition, members)]
    if found.state == "delayed":
        return [*reasons, _due(found)]
    reasons += await _others_come_first(partition, found)
    if not reasons:
        reasons += await _limits(store, live, members)
    return reasons or [await _in_line(store, live, partition, found, members)]


async def _active(partition: Partition, found: Found) -> list[Reason]:
    running = Reason("running", f"worker {found.worker} has it")
    if any(mark.id == found.id.encode() for mark in await partition.marks()):
        return [running, Reason("stopping", "it was told to stop, and has not yet")]
    return [running]


def _queue_stands_still(live: Live) -> list[Reason]:
    name = live.settings.name
    paused = live.changed.get(PAUSED)
    if paused is not None:
        return [Reason("paused", f'queue "{name}" was paused by {paused.by}; resume it', at=paused.at)]
    if live.held > 0:
        return [Reason("held", f'queue "{name}" rests for {live.held:.0f} s more: {live.held_because}')]
    return []


def _nobody_reads(partition: Partition, members: Mapping[str, Member]) -> list[Reason]:
    name = partition.settings.name
    serving = [member.queues[name] for member in members.values() if name in member.queues]
    if not serving:
        return [
            Reason("no-worker", f'no worker serves queue "{name}"; start one with "qbull worker MODULE:APP"')
        ]
    if not any(partition.number in one.partitions for one in serving):
        shown = place_of(partition.number)
        return [
            Reason(
                "unread",
                f"none of the {len(serving)} workers reads partition {shown}; see qbull partitions {name}",
            )
        ]
    return []


def _due(found: Found) -> Reason:
    at = moment(found.due_ms or 0)
    history = found.body().history
    if history:
        return Reason(
            "retry",
            f"attempt {history[-1].attempt} failed; it waits for the next: {history[-1].error}",
            at=at,
        )
    return Reason("due", "it is not due yet", at=at)


async def _others_come_first(partition: Partition, found: Found) -> list[Reason]:
    """It is in the line of its key, behind somebody."""
    its_lane = lane_of(found.record)
    if not its_lane or found.entry_ms:
        return []
    line = await lane.look(partition, its_lane, 0, found.id)
    whose = "its partition" if its_lane == PARTITION_LANE else f'the key "{found.body().key}"'
    if line.holder is None:
        return [Reason("behind", f"others of {whose} come first")]
    if line.halted:
        text = f"{whose} is halted: job {line.holder} has failed for good; retry or remove that one"
        return [Reason("halted", text, job=line.holder)]
    text = f"it is number {line.position} behind job {line.holder} of {whose}, which is {line.holder_state}"
    return [Reason("behind", text, job=line.holder)]


async def _limits(store: Store, live: Live, members: Mapping[str, Member]) -> list[Reason]:
    settings = live.settings
    if settings.max_active is None and settings.rate is None:
        return []
    used, waiting = await permits.in_use(store, settings.name)
    if settings.max_active is not None and used >= settings.max_active:
        return [Reason("limit", f"{used} jobs of the queue run, and max_active is {settings.max_active}")]
    if settings.rate is not None and waiting:
        return [Reason("rate", f"the queue may start {settings.rate}, and has")]
    return []


async def _in_line(
    store: Store, live: Live, partition: Partition, found: Found, members: Mapping[str, Member]
) -> Reason:
    index = await store.server.call("HGET", partition.base + "index", found.id)
    before = await lane.ahead(partition, index[1:], AHEAD) if index is not None and index[:1] == b"r" else 0
    name = live.settings.name
    slots = sum(member.queues[name].concurrency for member in members.values() if name in member.queues)
    active = (await count(partition)).active
    if before or active:
        many = f"more than {AHEAD}" if before > AHEAD else str(before)
        return Reason(
            "line",
            f"{many} others come first; {active} of its partition run, and there are {slots} slots for the queue",
        )
    return Reason("next", "nothing stands in its way; it is about to begin")


def _ended(found: Found) -> str:
    return {"completed": "completed", "failed": "failed for good", "cancelled": "been cancelled"}[found.state]
