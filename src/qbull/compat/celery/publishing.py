"""Enqueueing with the signals and headers of Celery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from qbull.compat.celery.request import CALL_HEADERS_HEADER, PRIORITY_HEADER, SOFT_LIMIT_HEADER
from qbull.compat.celery.signals import after_task_publish, before_task_publish
from qbull.compat.celery.task_options import celery_priority_of, priority_of
from qbull.compat.exact_values import with_types
from qbull.errors import ArgumentsError

if TYPE_CHECKING:
    from qbull.compat.celery.task import CeleryTask
    from qbull.task import Call


def announce(
    task: CeleryTask, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Send before_task_publish. Returns the options with the headers that the receivers have set."""
    if not before_task_publish.receivers:
        return options
    id = options.get("task_id") or str(uuid4())
    own = {"lang": "py", "task": task.name, "id": id, "eta": options.get("eta"), "retries": 0}
    headers = {**own, **(options.get("headers") or {})}
    properties = {"correlation_id": id, "priority": options.get("priority")}
    before_task_publish.send(
        task.name,
        body=(tuple(args), dict(kwargs), {}),
        exchange="",
        routing_key=options.get("queue"),
        headers=headers,
        properties=properties,
        declare=[],
        retry_policy={},
    )
    added = {name: value for name, value in headers.items() if name not in own}
    return {**options, "task_id": id, "headers": added or None}


def announce_sent(
    task: CeleryTask, call: Call[..., Any], id: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Send after_task_publish."""
    if after_task_publish.receivers:
        after_task_publish.send(
            task.name,
            body=(tuple(args), dict(kwargs), {}),
            exchange="",
            routing_key=call._queue.name,
            headers={"lang": "py", "task": task.name, "id": id, "retries": 0},
        )


def headers_of(
    given: Mapping[str, Any] | None, soft_limit: float | None = None, priority: int | None = None
) -> dict[str, str] | None:
    """Return the headers, the soft time limit and the priority of a call as headers of a job."""
    made: dict[str, str] = {}
    if priority is not None and celery_priority_of(priority_of(priority)) != priority:
        made[PRIORITY_HEADER] = str(priority)
    if soft_limit is not None:
        if not soft_limit > 0:
            raise ArgumentsError(f"apply_async(soft_time_limit={soft_limit!r}): give seconds, more than 0")
        made[SOFT_LIMIT_HEADER] = f"{soft_limit:g}"
    if given:
        try:
            made[CALL_HEADERS_HEADER] = msgspec.json.encode(with_types(dict(given))).decode()
        except (TypeError, msgspec.MsgspecError) as error:
            raise ArgumentsError(f"apply_async(headers=…): they cannot be encoded: {error}") from None
    return made or None
