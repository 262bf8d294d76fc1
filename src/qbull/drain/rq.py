"""RQ's jobs on Redis: lists of ids, sorted sets of delayed ids, and a hash with a pickle or JSON for each
job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from qbull.compat.rq.job_options import FAILURE_HEADER, SUCCESS_HEADER
from qbull.compat.rq.retry import REPEAT_HEADER, RETRY_WAITS_HEADER, waits_of
from qbull.compat.rq.run import (
    callbacks_of,
    is_wrapped_function,
)
from qbull.drain.message import CannotMove, ForeignJob, SourceMessage
from qbull.drain.pickles import read, unpacked
from qbull.drain.source import MessagePage, SourceCollection, SourceServer, Taken
from qbull.errors import MAX_DELAY_SECONDS
from qbull.queue import Queue

RQ_QUEUES_KEY = "rq:queues"
RQ_QUEUE_KEY_PREFIX = "rq:queue:"
CALLBACK_HEADERS = {"success_callback_name": SUCCESS_HEADER, "failure_callback_name": FAILURE_HEADER}
REFUSED_FIELDS = {
    "meta": "it has meta, which nothing here reads",
    "stopped_callback_name": "it has a callback for being stopped",
    "webhooks": "it has webhooks",
    "group_id": "it is part of a group",
}


class RqRecord(msgspec.Struct):
    """A job while it is set aside. It is complete, so that its hash is not needed any more."""

    id: str
    queue: str
    fields: dict[str, bytes]
    at: float = 0.0
    dependents: int = 0


class RqSource:
    def __init__(self, old: SourceServer) -> None:
        self.old = old

    async def queues(self) -> list[str]:
        names = await self.old.call("SMEMBERS", RQ_QUEUES_KEY)
        return sorted(name.decode().removeprefix(RQ_QUEUE_KEY_PREFIX) for name in names)

    async def collections(self, queue: str) -> list[SourceCollection]:
        """Return the list of waiting jobs, then the set of delayed ones."""
        return [
            SourceCollection(queue, "head", f"{RQ_QUEUE_KEY_PREFIX}{queue}"),
            SourceCollection(queue, "member", f"rq:scheduled:{queue}"),
        ]

    async def held(self) -> int:
        return 0

    async def page(self, collection: SourceCollection, skip: int) -> MessagePage:
        found = []
        values = await self.old.values(collection, skip)
        for value, at in values:
            id = value.decode()
            flat = await self.old.call("HGETALL", f"rq:job:{id}")
            fields = {name.decode(): data for name, data in zip(flat[::2], flat[1::2], strict=True)}
            waiting = await self.old.call("SCARD", f"rq:job:{id}:dependents")
            record = RqRecord(id, collection.queue, fields, at, waiting)
            found.append(SourceMessage(id, value, msgspec.msgpack.encode(record), [f"rq:job:{id}"]))
        return len(values), found

    async def set_aside(self, collection: SourceCollection, messages: Sequence[SourceMessage]) -> list[Taken]:
        return await self.old.set_aside(collection, messages)

    def stays(self, name: str) -> None:
        """Nothing depends on a message that stays."""

    def job(self, stored: bytes) -> ForeignJob:
        record = msgspec.msgpack.decode(stored, type=RqRecord)
        fields = record.fields
        if "data" not in fields:
            raise CannotMove("its record is gone from the server")
        if record.dependents:
            raise CannotMove(f"{record.dependents} jobs wait for it (depends_on); let RQ run it")
        for name, why in REFUSED_FIELDS.items():
            if fields.get(name):
                raise CannotMove(f"{why}; let RQ run it")
        task, args, kwargs = _call(fields["data"])
        headers = _headers(fields)
        return ForeignJob(
            id=record.id,
            stamp=" ".join(fields.get(name, b"").decode() for name in ("created_at", "enqueued_at")),
            queue=record.queue,
            task=task,
            args=args,
            kwargs=kwargs,
            at=datetime.fromtimestamp(record.at, UTC) if record.at else None,
            expires=_end(fields),
            timeout=_timeout(fields),
            headers=headers,
            check_task=partial(_check_task, headers) if headers.keys() - {RETRY_WAITS_HEADER} else None,
        )


def _headers(fields: Mapping[str, bytes]) -> dict[str, str]:
    """The retries, repeats and callbacks of a job, as the shim's jobs carry them."""
    headers = {header: fields[name].decode() for name, header in CALLBACK_HEADERS.items() if fields.get(name)}
    retries, repeats = (int(fields.get(name) or 0) for name in ("retries_left", "repeats_left"))
    if retries > 0:
        intervals = json.loads(fields.get("retry_intervals") or b"[0]")
        headers[RETRY_WAITS_HEADER] = waits_of(retries, intervals)
    if repeats > 0:
        intervals = json.loads(fields.get("repeat_intervals") or b"[0]")
        # RQ takes the interval with the number of repeats that are left.
        waits = [intervals[min(left, len(intervals)) - 1] for left in range(repeats, 0, -1)]
        headers[REPEAT_HEADER] = ",".join(map(str, waits))
    return headers


def _check_task(headers: Mapping[str, str], queue: Queue, task: str) -> None:
    """Raise CannotMove if workers would not call the callbacks of a job, or would not repeat it."""
    if not is_wrapped_function(queue.tasks[task].function):
        raise CannotMove(
            f'it has callbacks or repeats, and "{task}" is no function of qbull.compat.rq; '
            "register it with queue.register(…), or let RQ run it"
        )
    for name in (headers[header] for header in CALLBACK_HEADERS.values() if header in headers):
        if name not in callbacks_of(queue.app):
            raise CannotMove(
                f'its callback "{name}" is not registered; add queue.register_callbacks(…), or let RQ run it'
            )


def _call(data: bytes) -> tuple[str, Any, Any]:
    plain = unpacked(data)
    if plain.startswith(b"\x80"):
        value = read(plain)
    else:
        try:
            value = json.loads(plain)
        except (ValueError, RecursionError):
            raise CannotMove("its arguments are neither a pickle nor JSON; let RQ run it") from None
    try:
        task, instance, args, kwargs = value
    except (TypeError, ValueError):
        raise CannotMove("its record is none of RQ's") from None
    if instance is not None:
        raise CannotMove("it calls a method; let RQ run it")
    return str(task), args, kwargs


def _timeout(fields: Mapping[str, bytes]) -> float | None:
    """Return the timeout in seconds; -1 means no limit."""
    if not fields.get("timeout"):
        return None
    seconds = int(fields["timeout"])
    return MAX_DELAY_SECONDS if seconds == -1 else seconds


def _end(fields: Mapping[str, bytes]) -> datetime | None:
    """Return the time at which the job expires: its ttl counts from its creation."""
    if not fields.get("ttl"):
        return None
    made = datetime.fromisoformat(fields["created_at"].decode().replace("Z", "+00:00"))
    return made + timedelta(seconds=int(fields["ttl"]))
