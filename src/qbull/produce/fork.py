"""Fork: read the history of a durable job that has ended, and enqueue a new job that continues it.

The records of a history are bound to their job, so each is opened and protected again. The new job and its
history are one change (lua/fork.lua). The id is drawn before it is sent, so sending it twice is harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qbull.codecs.context import payload_context
from qbull.core.codec import encode_result
from qbull.core.durable import MAX_HISTORY_BYTES, STEP_FIELD, StepRecord, encode_record
from qbull.core.flow import HAS_DEPENDENCIES_FLAG
from qbull.core.fork import CopiedStep, ForkRequest, copied_publications, copied_steps
from qbull.core.ids import check_id
from qbull.core.job_conflicts import FORK_CONFLICTS, conflict, unreadable
from qbull.core.options import EncodedArguments, Options
from qbull.core.published import PUBLISHED_FIELD
from qbull.core.record import ExtendedBody, UnreadableRecord, body_of, priority_of, repack
from qbull.core.wrapped_payload import is_wrapped
from qbull.errors import ArgumentsError, Conflict, PayloadError, TooLarge, job_not_found
from qbull.produce.router import PlacedJob
from qbull.store.audit import note
from qbull.store.read.inspect import StoredJob
from qbull.worker.durable_services import published_context, step_context

if TYPE_CHECKING:
    from qbull.queue import Queue


async def fork_job(queue: Queue, id: str, request: ForkRequest) -> tuple[str, bool]:
    """Enqueue the new job; returns its id, and whether it was created."""
    if request.id is not None:
        check_id(request.id)
    found, body, records = await _ended_job(queue, id)
    if not records:
        raise Conflict(
            f'queue "{queue.name}": job {id} has no recorded steps; enqueue its task again', state=found.state
        )
    steps = copied_steps(records, request)
    try:
        contents = _opened(queue, id, body.task, records, steps)
        payload = await _opened_payload(queue, id, body, request)
        published = await _opened_published(queue, id, body.task, copied_publications(records, steps))
    except ArgumentsError:
        raise
    except PayloadError as error:
        raise Conflict(
            f'queue "{queue.name}": job {id} cannot be forked: {error}', state=found.state
        ) from None
    patched = _patched_contents(queue, body.task, steps, request)
    placed = await _placed(queue, found, payload, request)
    history = _history(queue, placed.job.id, body.task, steps, contents | patched)
    history |= _published(queue, placed.job.id, body.task, published)
    app = queue.app
    created = await app._client().add_fork(queue.settings, placed, history, app.durability)
    note(forked=placed.job.id)
    return placed.job.id, created


async def _ended_job(queue: Queue, id: str) -> tuple[StoredJob, ExtendedBody, list[StepRecord]]:
    """A job that has ended, and its history."""
    client = queue.app._client()
    there = await client.find(queue.settings, id)
    if there is None:
        raise job_not_found(queue.name, id)
    partition, found = there
    if found.ending is None:
        raise conflict(queue.name, id, found.state, FORK_CONFLICTS)
    try:
        body = body_of(found.record)
        records = await client.read_records(partition, id, is_strict=True)
    except UnreadableRecord as error:
        raise unreadable(queue.name, id, "forked", error, found.state) from None
    except ValueError as error:
        raise Conflict(
            f'queue "{queue.name}": job {id} cannot be forked: {error}', state=found.state
        ) from None
    if found.record[2] & HAS_DEPENDENCIES_FLAG:
        raise Conflict(
            f'queue "{queue.name}": job {id} has results of other jobs of its flow; rerun the flow from it',
            state=found.state,
        )
    again = await client.find(queue.settings, id)
    if again is None or again[1].position != found.position:
        raise Conflict(
            f'queue "{queue.name}": job {id} runs again; fork it when it has ended', state="waiting"
        )
    return found, body, records


def _opened(
    queue: Queue, id: str, task: str, records: Sequence[StepRecord], steps: list[CopiedStep]
) -> dict[int, bytes]:
    """The contents of the copied records without the codecs of the app. Raises PayloadError."""
    codecs, contents = queue.app._codecs, dict[int, bytes]()
    originals = {record.number: record for record in records}
    for record, patch in steps:
        context, content = step_context(queue.name, id, task, originals[record.number]), record.content
        codecs.refuse_weaker(context, content)
        if patch is None:
            is_plain = not codecs.used and not is_wrapped(content)
            contents[record.number] = content if is_plain else codecs.open(context, content)
    return contents


async def _opened_published(queue: Queue, id: str, task: str, names: Collection[str]) -> dict[str, bytes]:
    """The values with these names that the job has published. Raises PayloadError."""
    client, codecs = queue.app._client(), queue.app._codecs
    there = await client.find(queue.settings, id) if names else None
    if there is None:
        return {}
    found = await client.read_published(there[0], id, None)
    contexts = {name: published_context(queue.name, id, task, name) for name in found.keys() & names}
    for name, context in contexts.items():
        codecs.refuse_weaker(context, found[name])
    return {name: codecs.open(context, found[name]) for name, context in contexts.items()}


def _published(queue: Queue, id: str, task: str, values: dict[str, bytes]) -> dict[bytes, bytes]:
    """The data of the new job: values that it has published already, bound to it."""
    protect, context = queue.app._codecs.protect, partial(published_context, queue.name, id, task)
    return {
        PUBLISHED_FIELD + name.encode("utf-8", "surrogatepass"): protect(context(name), value)
        for name, value in values.items()
    }


async def _opened_payload(queue: Queue, id: str, body: ExtendedBody, request: ForkRequest) -> bytes:
    """The arguments of the new job as JSON. Raises PayloadError."""
    queue.app._codecs.refuse_weaker(payload_context(queue.name, id, body), body.payload)
    if request.arguments is None:
        return await queue._payloads.load(id, body)
    return queue._payloads.encoded(id, body, request.arguments)


def _patched_contents(
    queue: Queue, task: str, steps: list[CopiedStep], request: ForkRequest
) -> dict[int, bytes]:
    """The given results as JSON, by the numbers of their steps."""
    spec, results = queue.tasks.get(task), request.results or {}
    hooks = queue.app._hooks if spec is None else spec.signature.hooks
    return {
        record.number: encode_result(results[patch], MAX_HISTORY_BYTES, hooks)
        for record, patch in steps
        if patch is not None
    }


async def _placed(queue: Queue, found: StoredJob, payload: bytes, request: ForkRequest) -> PlacedJob:
    """The new job: the task and the options of the old one, without its past."""
    app, producer, body = queue.app, queue._producer, body_of(found.record)
    options = Options(
        priority=priority_of(found.record),
        timeout=body.timeout,
        trace=body.trace or None,
        headers=body.headers,
    )
    layout = await producer.layout(app._client(), app.durability)
    arguments = EncodedArguments(payload, body.key, request.id, None)
    placed = producer.place(layout, body.task, arguments, options)
    new = body_of(placed.job.record)
    new.attempts, new.forked_from = body.attempts, found.id
    job = placed.job._replace(record=repack(placed.job.record, new))
    [placed] = await producer.offload([replace(placed, job=job, plain=False)])
    return placed


def _history(
    queue: Queue, id: str, task: str, steps: list[CopiedStep], contents: dict[int, bytes]
) -> dict[bytes, bytes]:
    """The data of the new job: the copied records, bound to it."""
    protect, history = queue.app._codecs.protect, dict[bytes, bytes]()
    for record, _ in steps:
        number = record.number
        content = protect(step_context(queue.name, id, task, record), contents[number])
        history[STEP_FIELD + b"%d" % number] = encode_record(replace(record, content=content))
    if sum(map(len, history.values())) > MAX_HISTORY_BYTES:
        raise TooLarge(
            f'task "{task}": the history of the fork takes more than {MAX_HISTORY_BYTES:,} bytes; '
            "give smaller results"
        )
    return history
