"""RQ's jobs on Redis: lists of ids, sorted sets of delayed ids, and a hash with a pickle or JSON for each
job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from qbull.compat.rq.retry import RETRY_WAITS_HEADER, waits_of
from qbull.drain.message import CannotMove, ForeignJob, SourceMessage
from qbull.drain.pickles import read, unpacked
from qbull.drain.source import MessagePage, SourceCollection, SourceServer, Taken
from qbull.errors import MAX_DELAY_SECONDS

RQ_QUEUES_KEY = "rq:queues"
RQ_QUEUE_KEY_PREFIX = "rq:queue:"
CALLBACK_FIELDS = ("success_callback_name", "failure_callback_name", "stopped_callback_name", "webhooks")
REFUSED_FIELDS = {
    "meta": "it has meta, which nothing here reads",
    "repeats_left": "it repeats; use a schedule",
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
        if any(fields.get(name) for name in CALLBACK_FIELDS):
            raise CannotMove("it has callbacks; let RQ run it")
        for name, why in REFUSED_FIELDS.items():
            if fields.get(name):
                raise CannotMove(f"{why}; let RQ run it")
        task, args, kwargs = _call(fields["data"])
        left = int(fields.get("retries_left") or 0)
        intervals = json.loads(fields.get("retry_intervals") or b"[0]")
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
            headers={RETRY_WAITS_HEADER: waits_of(left, intervals)} if left > 0 else {},
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
