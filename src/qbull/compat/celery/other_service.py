"""Tasks of another service: `app.send_task(name, …)` for a task that this program does not declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qbull.compat.celery.call_options import CALL_OPTIONS
from qbull.compat.celery.task import options_of
from qbull.compat.exact_arguments import MORE_FIELD, REST_FIELD, SOURCE_FIELD
from qbull.compat.exact_values import with_types
from qbull.core.codec import encode_payload
from qbull.core.options import EncodedArguments
from qbull.errors import ArgumentsError
from qbull.job import Job
from qbull.produce.chain import Request

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery


async def send_elsewhere(
    app: Celery, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> Job[Any]:
    """Enqueue a task by its name. Its worker checks the arguments.

    The queue must be declared here, or known to the server.
    """
    unknown = [each for each in options if each not in CALL_OPTIONS]
    if unknown:
        raise ArgumentsError(
            f'send_task("{name}", {unknown[0]}=…): the task is not declared in this app; '
            "import its module, or leave the option out"
        )
    home = options.get("queue") or app.conf.queue_of(name) or app.conf.task_default_queue
    queue = app.queues.get(home)
    if queue is None:
        client = app._client()
        await client.store.open()
        queue = app._undeclared_queue(await client.store.settings(home))
    values: dict[str, Any] = {each: with_types(value) for each, value in kwargs.items()}
    if args:
        values = {REST_FIELD: with_types(list(args)), MORE_FIELD: values, SOURCE_FIELD: "caller"}
    made = options_of(app, options, app.conf.task_default_priority)
    call = EncodedArguments(encode_payload(name, values, app.payload_limit), None, made.id)
    return (await queue._producer.enqueue(Request(queue, name, [call], made)))[0]
