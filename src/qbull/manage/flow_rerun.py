"""Flow reruns: an ended job of a flow and all jobs behind it, planned as a new flow.

The jobs before them do not run again: the new jobs get copies of their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from qbull.core.flow import (
    HAS_DEPENDENCIES_FLAG,
    HAS_DEPENDENTS_FLAG,
    WAITING_LETTER,
    Dependency,
    DependencyFailureMode,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    counts_as_done,
    job_digest,
    with_flow_flags,
)
from qbull.core.ids import new_id, new_token
from qbull.core.record import ExtendedBody, body_of_copy, record_of_copy
from qbull.core.route import digest
from qbull.errors import Conflict, job_not_found
from qbull.manage.flow_walk import FlowWalk, JobAddress, QueueFinder, flow_levels
from qbull.store.read.inspect import StoredJob
from qbull.store.verbs import flow_messages

if TYPE_CHECKING:
    from qbull.produce.client import Client
    from qbull.queue import Queue


class OldJob(NamedTuple):
    """A job that runs again, as the server has it."""

    queue: Queue
    stored: StoredJob
    body: ExtendedBody
    payload: bytes
    """Its arguments, as JSON."""
    mode: DependencyFailureMode
    when: str
    dependencies: list[tuple[str, Dependency]]


class _NewDependency(NamedTuple):
    letter: str
    dependency: Dependency
    digests: bytes


class FlowRerun(NamedTuple):
    """The plan of the new flow, and the id of the job that it starts with."""

    plan: FlowPlan
    id: str


async def plan_rerun(client: Client, queue_of: QueueFinder, walked: FlowWalk, start: JobAddress) -> FlowRerun:
    """Plan the new flow. Raises Conflict if one of its jobs has not ended, or depends on a failed one."""
    addresses = _jobs_behind(walked, start)
    old = {address: await _read_job(client, queue_of, address) for address in addresses}
    for address, job in old.items():
        if job.stored.ending is None:
            raise Conflict(
                f'queue "{address[0]}": job {address[1]} of the flow has not ended; '
                "wait for it, or cancel the flow first",
                state=job.stored.state,
            )
    ids = {address: new_id(job.stored.partition) for address, job in old.items()}
    flow = new_token()
    seeds = [_seed(flow, address, old, ids) for address in addresses]
    return FlowRerun(FlowPlan(flow, seeds), ids[start])


def _jobs_behind(walked: FlowWalk, start: JobAddress) -> list[JobAddress]:
    """The job and all that wait for it, directly or not; a job comes before those that it waits for."""
    found, left = {start}, [start]
    while left:
        new = [other for other in walked.seen[left.pop()].tells if other not in found]
        kept = [other for other in new if other in walked.seen and walked.seen[other].info is not None]
        found.update(kept)
        left += kept
    levels = flow_levels(walked.seen)
    return sorted(found, key=lambda address: -levels[address])


async def _read_job(client: Client, queue_of: QueueFinder, address: JobAddress) -> OldJob:
    queue = await queue_of(address[0])
    there = await client.find(queue.settings, address[1])
    if there is None:
        raise job_not_found(*address)
    partition, stored = there
    place = await flow_messages.flow_place(partition, address[1])
    payload = await queue._payloads.load(address[1], stored.body())
    return OldJob(queue, stored, stored.body(), payload, place.mode, place.when, place.dependencies)


def _seed(
    flow: str, address: JobAddress, old: dict[JobAddress, OldJob], ids: dict[JobAddress, str]
) -> FlowJobSeed:
    job, id, settings = old[address], ids[address], old[address].queue.settings
    awaits = _dependencies(address, old, ids)
    tells = _dependents(job.body, ids)
    body = body_of_copy(job.body)
    codecs = job.queue.app._codecs
    body.flow, body.tells, body.payload = flow, tells, job.payload
    if codecs.used:
        body.awaits = [one.digests for one in awaits]
        body.payload = job.queue._producer.protect(id, body)
    flags = (HAS_DEPENDENTS_FLAG if tells else 0) | (HAS_DEPENDENCIES_FLAG if awaits else 0)
    return FlowJobSeed(
        settings.name,
        id,
        digest(body.key) if body.key is not None and settings.lane_limit else None,
        False,
        job.when,
        with_flow_flags(record_of_copy(job.stored.record, body), flags),
        job.mode,
        [one.dependency for one in awaits],
        "".join(one.letter for one in awaits),
    )


def _dependents(body: ExtendedBody, ids: dict[JobAddress, str]) -> list[Dependent]:
    links = [link for link in body.tells if (link.queue, link.id) in ids]
    # A fallback that was not needed is no longer kept, so nobody stands in: the others hear of every end.
    is_alone = len(links) < len(body.tells)
    return [
        msgspec.structs.replace(link, id=ids[link.queue, link.id], unless="" if is_alone else link.unless)
        for link in links
    ]


def _dependencies(
    address: JobAddress, old: dict[JobAddress, OldJob], ids: dict[JobAddress, str]
) -> list[_NewDependency]:
    """The dependencies of a job: those that run again, and the results of the others."""
    job, found = old[address], []
    for position, (letter, known) in enumerate(job.dependencies):
        again = [
            Dependency(source[0], ids[source], each.body.task)
            for source, each in reversed(old.items())
            if any((link.queue, link.id, link.position) == (*address, position) for link in each.body.tells)
        ]
        if not again and not counts_as_done(letter, job.mode):
            raise Conflict(
                f'queue "{address[0]}": job {address[1]} also waits for job {known.id} of queue '
                f'"{known.queue}", which has not completed; rerun that one',
                state=job.stored.state,
            )
        sources = again or [known]
        digests = b"".join(job_digest(one.queue, one.task, one.id) for one in sources)
        found.append(_NewDependency(WAITING_LETTER if again else letter, sources[0], digests))
    return found
