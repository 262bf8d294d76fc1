"""Flow walks: find all jobs of a flow from any of them.

The walk is bounded. Each job knows its dependents; a job that waits also knows its dependencies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from qbull.core.flow import NEVER_DUE_MS, Dependency
from qbull.core.job_info import JobInfo
from qbull.core.record import State
from qbull.errors import NotFound
from qbull.store.verbs import flow_messages

if TYPE_CHECKING:
    from qbull.produce.client import Client
    from qbull.queue import Queue

JobAddress: TypeAlias = tuple[str, str]
QueueFinder: TypeAlias = "Callable[[str], Awaitable[Queue]]"
FlowJobState = Literal[State, "removed"]
FLOW_STATE_BY_CODE: dict[str, FlowJobState] = {"c": "completed", "f": "failed", "x": "cancelled"}


class FlowJob(msgspec.Struct):
    """A job of a flow, as stored or as its dependents know it."""

    task: str
    state: FlowJobState
    flow: str = ""
    info: JobInfo | None = None
    awaits: list[JobAddress] = msgspec.field(default_factory=list)
    tells: list[JobAddress] = msgspec.field(default_factory=list)
    fallbacks: set[JobAddress] = msgspec.field(default_factory=set)
    """Those of `tells` that run only if this job does not complete."""
    blocked: bool = False
    fallback: bool = False
    error: str | None = None


class FlowWalk(msgspec.Struct):
    """The result of a walk: `seen` in the order of discovery; `more` if it stopped before the end."""

    flow: str
    seen: dict[JobAddress, FlowJob]
    more: bool


async def walk_flow(client: Client, queue_of: QueueFinder, start: JobAddress, most: int) -> FlowWalk | None:
    """All jobs of this job's flow; None if there is no such job. Jobs found together are read together."""
    seen: dict[JobAddress, FlowJob] = {}
    told: dict[JobAddress, tuple[str, Dependency]] = {}
    outside: dict[JobAddress, FlowJobState] = {}
    flow, tried, next_ = "", {start}, [start]
    while next_ and len(seen) < most:
        addresses = next_[: most - len(seen)]
        next_ = next_[len(addresses) :]
        found = await asyncio.gather(*(_visit_job(client, queue_of, address, told) for address in addresses))
        if found[0] is None and not seen:
            return None
        for address, one in zip(addresses, found, strict=True):
            if one is None:
                continue  # It is no longer kept.
            if flow and one.flow != flow:
                # It was there before the flow, or another job has taken its id.
                outside[address] = one.state
                continue
            flow, seen[address] = one.flow, one
            new = [other for other in (*one.awaits, *one.tells) if other not in tried]
            tried.update(new)
            next_ += new if flow else []
    for address, (letter, known) in told.items():
        if address not in seen and len(seen) < most:
            state = FLOW_STATE_BY_CODE.get(letter) or outside.get(address, "removed")
            seen[address] = FlowJob(known.task, state, error=known.error)
    return FlowWalk(flow, seen, bool(next_))


async def _visit_job(
    client: Client, queue_of: QueueFinder, address: JobAddress, told: dict[JobAddress, tuple[str, Dependency]]
) -> FlowJob | None:
    """Read one job. Adds what it knows about its dependencies to `told`."""
    name, id = address
    try:
        queue = await queue_of(name)
    except NotFound:
        return None
    there = await client.find(queue.settings, id)
    if there is None:
        return None
    partition, found = there
    body = found.body()
    place = await flow_messages.flow_place(partition, id) if body.flow else None
    awaited = place.dependencies if place is not None else []
    for letter, known in awaited:
        told[known.queue, known.id] = letter, known
    info = found.info(queue.name, queue._attempts_of(body.task))
    return FlowJob(
        body.task,
        info.state,
        body.flow,
        info,
        awaits=[(known.queue, known.id) for _, known in awaited],
        tells=[(link.queue, link.id) for link in body.tells],
        fallbacks={(link.queue, link.id) for link in body.tells if link.is_fallback},
        blocked=info.state == "delayed" and (found.due_ms or 0) >= NEVER_DUE_MS and not info.suspended,
        fallback=place is not None and place.mode == "rescue",
        error=info.error,
    )


def flow_levels(seen: dict[JobAddress, FlowJob]) -> dict[JobAddress, int]:
    """The depth of each job: how many others must end one after another before it."""
    levels: dict[JobAddress, int] = {}
    left = deque(seen)
    turns = 0
    while left and turns <= len(seen) ** 2:
        turns += 1
        address = left.popleft()
        before = [one for one in seen[address].awaits if one in seen]
        if all(one in levels for one in before):
            levels[address] = max((levels[one] + 1 for one in before), default=0)
        else:
            left.append(address)
    return levels | dict.fromkeys(left, 0)


def flow_exits(seen: dict[JobAddress, FlowJob]) -> list[JobAddress]:
    """The job that a flow ends with, then the jobs that stand in for it; none if it is no longer kept."""
    levels = flow_levels(seen)

    def is_fallback(of: FlowJob, address: JobAddress) -> bool:
        return address in of.fallbacks or (address in seen and seen[address].fallback)

    exits = [
        address
        for address, job in seen.items()
        if job.info is not None and all(is_fallback(job, other) for other in job.tells)
    ]
    # While a flow ends, the fallback that was not needed may already have lost its place in it.
    fallbacks = {address for job in seen.values() for address in job.fallbacks}
    return sorted(
        exits, key=lambda address: (address in fallbacks or seen[address].fallback, levels[address])
    )
