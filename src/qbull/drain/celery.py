"""Celery's messages on Redis: lists of JSON for each queue and priority, and what workers have not acknowledged.

Messages of protocol 2, with JSON in them: what Celery writes since 4.0 where nobody says otherwise.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from qbull.compat.celery.task import RETRIES_HEADER, priority_of
from qbull.drain.message import CannotMove, ForeignJob, SourceMessage
from qbull.drain.source import SourceCollection, SourceServer

KOMBU_SEPARATOR = "\x06\x16"
"""What kombu writes between the name of a queue and a priority, and in its bindings."""
DEFAULT_CELERY_QUEUE = "celery"
BINDING_KEY_PREFIX = "_kombu.binding."
INTERNAL_QUEUE_SUFFIXES = (".pidbox", "celeryev")
"""Queues of Celery's own, for remote control and events."""
UNMOVABLE_FIELDS = {
    "chain": "more tasks come after it (a chain)",
    "chord": "it is part of a chord",
    "callbacks": "it has callbacks (link)",
    "errbacks": "it has callbacks for errors (link_error)",
}
KOMBU_TYPES: dict[str, Any] = {
    "datetime": datetime.fromisoformat,
    "date": lambda text: datetime.fromisoformat(text).date(),
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": lambda value: UUID(**value),
    "bytes": str.encode,
    "base64": lambda text: base64.b64decode(text.encode()),
}
"""How kombu writes what JSON has no words for."""


class CelerySource:
    """`zone` is meant where an eta has none; `prefix` is kombu's global_keyprefix."""

    def __init__(
        self, old: SourceServer, *, zone: str = "UTC", prefix: str = "", unacked: bool = False
    ) -> None:
        self.old = old
        self._zone = ZoneInfo(zone)
        self._prefix = prefix
        self._unacked = unacked

    async def queues(self) -> list[str]:
        """The queues that Celery has bound, besides those for its own use; and the default one, where there is something in it."""
        found = (
            {DEFAULT_CELERY_QUEUE}
            if await self.old.call("EXISTS", self._prefix + DEFAULT_CELERY_QUEUE)
            else set()
        )
        start = f"{self._prefix}{BINDING_KEY_PREFIX}"
        for name in await self.old.names(f"{start}*"):
            if not name.endswith(INTERNAL_QUEUE_SUFFIXES):
                for binding in await self.old.call("SMEMBERS", name):
                    found.add(binding.decode().rpartition(KOMBU_SEPARATOR)[2])
        return sorted(found)

    async def shelves(self, queue: str) -> list[SourceCollection]:
        """A list for each priority, the first one first; and what is with workers, where that is asked for."""
        names = [queue, *(f"{queue}{KOMBU_SEPARATOR}{step}" for step in range(1, 10))]
        shelves = [SourceCollection(queue, "tail", self._prefix + name) for name in names]
        if self._unacked:
            shelves.append(
                SourceCollection(queue, "field", f"{self._prefix}unacked", f"{self._prefix}unacked_index")
            )
        return shelves

    async def held(self) -> int:
        """Messages that workers have and have not acknowledged."""
        return int(await self.old.call("HLEN", f"{self._prefix}unacked"))

    async def read(self, shelf: SourceCollection, values: list[tuple[bytes, float]]) -> list[SourceMessage]:
        if shelf.kind != "field":
            return [SourceMessage(_tag(value), value, _kept(shelf.queue, value)) for value, _ in values]
        tags = [tag for tag, _ in values]
        held = await self.old.call("HMGET", shelf.name, *tags) if tags else []
        found = []
        for tag, packed in zip(tags, held, strict=True):
            queue, message = _unacked(packed)
            if queue == shelf.queue:
                found.append(SourceMessage(tag.decode(), tag, _kept(queue, message)))
        return found

    def letter(self, kept: bytes) -> ForeignJob:
        queue, message = msgspec.msgpack.decode(kept, type=tuple[str, bytes])
        envelope = _envelope(message)
        headers = envelope.get("headers") or {}
        if "task" not in headers:
            raise CannotMove("it is no message of Celery's protocol 2; let Celery run it")
        args, kwargs, embedded = _body(envelope)
        for name, why in UNMOVABLE_FIELDS.items():
            if (embedded or {}).get(name):
                raise CannotMove(f"{why}; let Celery run it to its end")
        retries = int(headers.get("retries") or 0)
        limits = [float(limit) for limit in headers.get("timelimit") or () if limit]
        return ForeignJob(
            id=str(headers["id"]),
            stamp=_tag(message),
            queue=queue,
            task=str(headers["task"]),
            args=args,
            kwargs=kwargs,
            at=self._moment(headers.get("eta")),
            expires=self._moment(headers.get("expires")),
            priority=_priority(envelope),
            timeout=min(limits, default=None),
            headers={RETRIES_HEADER: str(retries)} if retries else {},
        )

    def _moment(self, text: str | None) -> datetime | None:
        if not text:
            return None
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=self._zone)).astimezone(UTC)


def _kept(queue: str, message: bytes) -> bytes:
    return msgspec.msgpack.encode((queue, message))


def _envelope(message: bytes) -> dict[str, Any]:
    try:
        envelope = json.loads(message)
    except ValueError:
        raise CannotMove("it is not JSON, so it is none of Celery's messages") from None
    if not isinstance(envelope, dict):
        raise CannotMove("it is none of Celery's messages")
    return envelope


def _tag(message: bytes) -> str:
    """The name that kombu gives each message; what has none cannot be moved, and needs none."""
    try:
        return str(_envelope(message)["properties"]["delivery_tag"])
    except (CannotMove, KeyError, TypeError):
        return ""


def _unacked(packed: bytes | None) -> tuple[str, bytes]:
    """The queue and the message of what a worker holds. It was acknowledged meanwhile where there is nothing."""
    try:
        message, _, queue = json.loads(packed or b"null")
        return str(queue), json.dumps(message).encode()
    except (ValueError, TypeError):
        return "", b""


def _body(envelope: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], dict[str, Any] | None]:
    kind = envelope.get("content-type")
    if kind != "application/json":
        raise CannotMove(f"its body is {kind}, not JSON; let Celery run it")
    if envelope.get("headers", {}).get("compression"):
        raise CannotMove("its body is compressed; let Celery run it")
    body = envelope.get("body", "")
    try:
        if envelope.get("properties", {}).get("body_encoding") == "base64":
            body = base64.b64decode(body)
        args, kwargs, embedded = json.loads(body, object_hook=_typed)
    except (ValueError, TypeError, binascii.Error) as error:
        raise CannotMove(f"its body cannot be read: {error}") from None
    return args, kwargs, embedded


def _typed(value: dict[str, Any]) -> Any:
    if value.keys() != {"__type__", "__value__"}:
        return value
    if value["__type__"] not in KOMBU_TYPES:
        raise CannotMove(f"its arguments have a {value['__type__']} of your own making; let Celery run it")
    return KOMBU_TYPES[value["__type__"]](value["__value__"])


def _priority(envelope: Mapping[str, Any]) -> int:
    given = envelope.get("properties", {}).get("priority")
    return priority_of(min(max(int(given), 0), 9) if given is not None else None)
