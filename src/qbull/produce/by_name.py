"""Enqueue by name: for whoever has the name of a task instead of the task, such as the command line and the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from qbull.core.codec import encode_payload
from qbull.errors import ArgumentsError, ConfigError, NotFound
from qbull.job import Job
from qbull.options import EncodedArguments, Options
from qbull.produce import outbox_rows
from qbull.queue import Queue
from qbull.task import Call


async def enqueue(queue: Queue, task: str, values: Mapping[str, Any], options: Options) -> Job[Any]:
    """Checked like a call where the code of the task is here; else by its worker."""
    if "self" in values:
        raise ArgumentsError('no argument of a task can be called "self"')
    tracing = queue.app.tracing
    if not queue.tasks and tracing is not None:
        with tracing.send(queue.name, task) as carried:
            return await _enqueue_unchecked(queue, task, values, replace(options, trace=carried))
    if not queue.tasks:
        return await _enqueue_unchecked(queue, task, values, options)
    if task not in queue.tasks:
        raise NotFound(_unknown_task(queue.name, task, sorted(queue.tasks), "in this app"))
    call: Call[..., Any] = Call(queue, queue.tasks[task], options)
    return await call.enqueue(**values)


async def _enqueue_unchecked(
    queue: Queue, task: str, values: Mapping[str, Any], options: Options
) -> Job[Any]:
    """For a task that the server has heard of and whose code is elsewhere."""
    client = queue.app.client()
    known = await client.store.tasks(queue.name)
    if task not in known:
        raise NotFound(_unknown_task(queue.name, task, known, "known to the server"))
    if queue.settings.needs_key and options.key is None:
        raise ConfigError(
            f'queue "{queue.name}" is ordered by key; give its key (--key KEY), or use the code (--app) so that the task can make it'
        )
    payload = queue.seal(task, encode_payload(task, values, queue.app.payload_limit))
    arguments = EncodedArguments(payload, options.key, options.id)
    if options.in_outbox:
        [id] = await outbox_rows.write(queue, task, [arguments], options)
        return queue.handle(id, True, expected=True)
    layout = await client.layout(queue.settings)
    placed = queue.place(layout, task, arguments, options)
    created = await client.enqueue(queue.settings, placed, options.profile or queue.app.durability)
    return queue.handle(placed.job.id, created)


def _unknown_task(queue: str, task: str, known: list[str], where: str) -> str:
    return f'queue "{queue}": no task "{task}" is {where}; there is: {", ".join(known) or "none"}'
