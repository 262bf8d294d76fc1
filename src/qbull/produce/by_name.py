"""Enqueue by name, for callers without the task itself: `app.send`, the command line and the REST API.

If the code of the task is in this process, it checks the arguments. If not, the descriptions do that workers
have published. In a rolling deploy a task has one for each version of the code, and a call must fit one of
them: a worker with that version will take it. A task without any description is sent unchecked, and its
worker checks it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from qbull.core.codec import decode_result, decode_untyped, encode_payload
from qbull.core.options import JOB_OPTIONS, EncodedArguments, Options
from qbull.core.task_description import TaskDescription
from qbull.errors import ArgumentsError, ConfigError, NotFound, ServerError
from qbull.job import Job
from qbull.produce.chain import Request
from qbull.produce.enqueue import Calling
from qbull.store.verbs.descriptions import KnownTask, TaskDescriptions

if TYPE_CHECKING:
    from qbull.app import App
    from qbull.produce.client import Client
    from qbull.queue import Queue

KNOWN_TASK_SECONDS = 10.0
"""Seconds for which a published description is used without asking again. It is always read again before a
call is refused."""


async def send(
    app: App, queue: str, task: str, calls: Iterable[Mapping[str, Any]], given: Mapping[str, Any]
) -> list[Job[Any]]:
    """Enqueue calls of a task by the names of its queue and itself."""
    request = await _request_for(app, queue, task, calls, given)
    return await request.queue._producer.enqueue(request) if request.calls else []


def send_sync(
    app: App, queue: str, task: str, calls: Iterable[Mapping[str, Any]], given: Mapping[str, Any]
) -> list[Job[Any]]:
    """`send` from synchronous code; with a transaction, the rows are written by its own connection."""
    request = app.run_sync(_request_for(app, queue, task, calls, given))
    if not request.calls:
        return []
    producer = request.queue._producer
    if request.options.transaction is not None:
        return producer.enqueue_in_transaction(request)
    return app.run_sync(producer.enqueue(request))


async def enqueue(queue: Queue, task: str, values: Mapping[str, Any], options: Options) -> Job[Any]:
    """Enqueue one call of a task by its name."""
    request = await _request(queue, task, [values], options)
    return (await queue._producer.enqueue(request))[0]


async def check_change(
    queue: Queue, task: str, before: dict[str, Any], after: dict[str, Any], key: str | None
) -> None:
    """Check new arguments of a job by the published descriptions of its task; one version must fit."""
    client = queue.app._client()
    known, is_fresh = await _known_task(client, queue, task)
    if not is_fresh and _misfit(known, before, after, key) is not None:
        client.known_tasks.pop((queue.name, task), None)
        known, _ = await _known_task(client, queue, task)
    if (refusal := _misfit(known, before, after, key)) is not None:
        raise refusal


def _misfit(
    known: KnownTask, before: dict[str, Any], after: dict[str, Any], key: str | None
) -> ArgumentsError | None:
    refusal: ArgumentsError | None = None
    for version in known.versions:
        try:
            version.check_change(known.name, before, after, key)
        except ArgumentsError as error:
            refusal = refusal or error
        else:
            return None
    return refusal


async def _request_for(
    app: App, queue: str, task: str, calls: Iterable[Mapping[str, Any]], given: Mapping[str, Any]
) -> Request:
    options = dict(given)
    returns = options.pop("returns", None)
    for name, value in options.items():
        if name not in _OPTION_NAMES:
            import difflib  # Here, because only this mistake needs it.

            close = difflib.get_close_matches(name, _OPTION_NAMES, n=1)
            meant = f"did you mean {close[0]}=?" if close else f"there is: {', '.join(_OPTION_NAMES)}"
            raise ArgumentsError(f"send({name}={value!r:.40}): is no option of a job; {meant}")
    for number, call in enumerate(values := list(calls), 1):
        if not isinstance(call, Mapping):
            raise ArgumentsError(
                f'task "{task}": call {number} is {call!r:.80}; give the arguments by name: {{"name": …}}'
            )
    if len(values) > 1 and options.get("id") is not None:
        raise ArgumentsError(f'task "{task}": one id cannot serve many jobs; send them one by one')
    found = app.queues.get(queue) or await _queue_on_server(app, queue)
    request = await _request(found, task, values, Options(**options))
    if returns is not None:
        request.decode = partial(decode_result, kind=returns, hooks=app._hooks)
    return request


_OPTION_NAMES = [option.name for option in JOB_OPTIONS]


async def _request(queue: Queue, task: str, calls: Sequence[Mapping[str, Any]], options: Options) -> Request:
    """Check the arguments of calls, by the code if it is here, else as workers have published them."""
    for values in calls:
        if "self" in values:
            raise ArgumentsError('no argument of a task can be called "self"')
    spec = queue.tasks.get(task)
    if spec is not None:
        call: Calling[..., Any] = Calling(queue, spec, options)
        return call._request([call.check(**values) for values in calls])
    app = queue.app
    payloads = [encode_payload(task, values, app._argument_limit, app._hooks) for values in calls]
    client = app._client()
    known, is_fresh = await _known_task(client, queue, task)
    try:
        return _checked(queue, known, payloads, options)
    except ArgumentsError:
        if is_fresh:
            raise
    # A worker with other code may have started since.
    client.known_tasks.pop((queue.name, task), None)
    known, _ = await _known_task(client, queue, task)
    return _checked(queue, known, payloads, options)


def _checked(queue: Queue, known: KnownTask, payloads: Sequence[bytes], options: Options) -> Request:
    """A request for calls that fit the same published version of the task, or for unchecked ones."""
    if not known.versions:
        if options.unique is not None:
            raise ArgumentsError(
                f'unique: the code of task "{known.name}" decides which calls are the same; '
                "use an app that has it (--app)"
            )
        unchecked = [EncodedArguments(payload, options.key, options.id) for payload in payloads]
        return _with_keys(Request(queue, known.name, unchecked, options, decode_untyped))
    refusal: ArgumentsError | None = None
    for version in known.versions:
        try:
            return _with_keys(_fitting(queue, known.name, version, payloads, options))
        except ArgumentsError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _fitting(
    queue: Queue, task: str, version: TaskDescription, payloads: Sequence[bytes], options: Options
) -> Request:
    completed = options.with_defaults(Options(unique=version.unique, expires=version.start_within))
    laned = queue.settings.lane_limit > 0
    calls = [version.call(task, payload, completed, laned) for payload in payloads]
    return Request(queue, task, calls, completed, decode_untyped)


def _with_keys(request: Request) -> Request:
    """Refuse calls without a key in a queue that is ordered by key."""
    if request.queue.settings.needs_key and any(call.key is None for call in request.calls):
        raise ConfigError(
            f'queue "{request.queue.name}" is ordered by key; '
            "give the key (key=…, or --key KEY), or the code of the task (--app), which makes it"
        )
    return request


async def _known_task(client: Client, queue: Queue, task: str) -> tuple[KnownTask, bool]:
    """A task as the server knows it, and whether it was read now."""
    now = time.monotonic()
    known, until = client.known_tasks.get((queue.name, task), (None, 0.0))
    if known is not None and now < until:
        return known, False
    known = await TaskDescriptions(client.store).find(queue.name, task)
    if known is None:
        names = queue.tasks.keys() | set(await _task_names(client, queue.name))
        raise NotFound(
            f'queue "{queue.name}": no task "{task}" is known to the server; '
            f"there is: {', '.join(sorted(names)) or 'none'}"
        )
    client.known_tasks[queue.name, task] = known, now + KNOWN_TASK_SECONDS
    return known, True


async def _task_names(client: Client, queue: str) -> list[str]:
    try:
        return await client.store.tasks(queue)
    except ServerError:  # A user that may only write must not list names.
        return ["names that this user may not list"]


async def _queue_on_server(app: App, name: str) -> Queue:
    """A queue that this app does not declare, with the settings that its workers have registered."""
    client, now = app._client(), time.monotonic()
    settings, until = client.known_queues.get(name, (None, 0.0))
    if settings is None or now >= until:
        settings = await client.store.settings(name)
        client.known_queues[name] = settings, now + KNOWN_TASK_SECONDS
    return app._undeclared_queue(settings)
