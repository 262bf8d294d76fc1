"""Enqueue by name, for callers without the task itself, such as the command line and the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qbull.core.codec import encode_payload
from qbull.core.options import EncodedArguments, Options
from qbull.errors import ArgumentsError, ConfigError, NotFound
from qbull.job import Job
from qbull.produce.chain import Request
from qbull.produce.enqueue import Calling

if TYPE_CHECKING:
    from qbull.queue import Queue


async def enqueue(queue: Queue, task: str, values: Mapping[str, Any], options: Options) -> Job[Any]:
    """Enqueue a task by its name.

    If the queue's code is in this process, the arguments are checked like those of a call. If not, the server
    must know the task, and its worker checks them.
    """
    if "self" in values:
        raise ArgumentsError('no argument of a task can be called "self"')
    if not queue.tasks:
        return await _enqueue_unchecked(queue, task, values, options)
    if task not in queue.tasks:
        raise NotFound(_unknown_task(queue.name, task, sorted(queue.tasks), "in this app"))
    call: Calling[..., Any] = Calling(queue, queue.tasks[task], options)
    return await call.enqueue(**values)


async def _enqueue_unchecked(
    queue: Queue, task: str, values: Mapping[str, Any], options: Options
) -> Job[Any]:
    """Enqueue a task that the server knows and whose code is elsewhere."""
    client = queue.app._client()
    known = await client.store.tasks(queue.name)
    if task not in known:
        raise NotFound(_unknown_task(queue.name, task, known, "known to the server"))
    if queue.settings.needs_key and options.key is None:
        raise ConfigError(
            f'queue "{queue.name}" is ordered by key; '
            "give the key (--key KEY), or the code of the task (--app), which makes it"
        )
    if options.unique is not None:
        raise ArgumentsError(
            f'unique: the code of task "{task}" decides which calls are the same; '
            "use an app that has it (--app)"
        )
    payload = encode_payload(task, values, queue.app.payload_limit, queue.app._hooks)
    calls = [EncodedArguments(payload, options.key, options.id)]
    return (await queue._producer.enqueue(Request(queue, task, calls, options)))[0]


def _unknown_task(queue: str, task: str, known: list[str], where: str) -> str:
    return f'queue "{queue}": no task "{task}" is {where}; there is: {", ".join(known) or "none"}'
