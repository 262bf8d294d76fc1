"""Celery's messages on Redis: a list of JSON for each queue and priority, and the unacknowledged messages.

Only messages of protocol 2 with JSON are read, which is the default since Celery 4.0.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from qbull.compat.celery.request import RETRIES_HEADER
from qbull.compat.celery.task_options import priority_of
from qbull.drain.message import CannotMove, ForeignJob, SourceMessage
from qbull.drain.source import MessagePage, SourceCollection, SourceServer, Taken

KOMBU_SEPARATOR = "\x06\x16"
"""The separator of kombu between the name of a queue and a priority, and in its bindings."""
DEFAULT_CELERY_QUEUE = "celery"
BINDING_KEY_PREFIX = "_kombu.binding."
INTERNAL_QUEUE_SUFFIXES = (".pidbox", "celeryev")
"""Internal queues of Celery, for remote control and events."""
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
"""The types that kombu writes in a form of its own, because JSON has none for them."""


class CelerySource:
    """The jobs of Celery.

    `zone` is the zone of an eta that has none; `prefix` is kombu's global_keyprefix.
    """

    def __init__(
        self, old: SourceServer, *, zone: str = "UTC", prefix: str = "", unacked: bool = False
    ) -> None:
        self.old = old
        self._zone = ZoneInfo(zone)
        self._prefix = prefix
        self._unacked = unacked

    async def queues(self) -> list[str]:
        """Return the queues that Celery has bound, except internal ones, and the default queue if it is not
        empty.
        """
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

    async def collections(self, queue: str) -> list[SourceCollection]:
        """Return a list for each priority, in order, and on request the unacknowledged messages."""
        names = [queue, *(f"{queue}{KOMBU_SEPARATOR}{step}" for step in range(1, 10))]
        collections = [SourceCollection(queue, "tail", self._prefix + name) for name in names]
        if self._unacked:
            collections.append(
                SourceCollection(queue, "field", f"{self._prefix}unacked", f"{self._prefix}unacked_index")
            )
        return collections

    async def held(self) -> int:
        """Return the number of messages that workers have not acknowledged."""
        return int(await self.old.call("HLEN", f"{self._prefix}unacked"))

    async def page(self, collection: SourceCollection, skip: int) -> MessagePage:
        values = await self.old.values(collection, skip)
        if collection.kind != "field":
            return len(values), [
                SourceMessage(_tag(value), value, _stored(collection.queue, value)) for value, _ in values
            ]
        tags = [tag for tag, _ in values]
        held = await self.old.call("HMGET", collection.name, *tags) if tags else []
        found = []
        for tag, packed in zip(tags, held, strict=True):
            queue, message = _unacked(packed)
            if queue == collection.queue:
                found.append(SourceMessage(tag.decode(), tag, _stored(queue, message)))
        return len(values), found

    async def set_aside(self, collection: SourceCollection, messages: Sequence[SourceMessage]) -> list[Taken]:
        return await self.old.set_aside(collection, messages)

    def stays(self, name: str) -> None:
        """Nothing depends on a message that stays."""

    def job(self, stored: bytes) -> ForeignJob:
        queue, message = msgspec.msgpack.decode(stored, type=tuple[str, bytes])
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


def _stored(queue: str, message: bytes) -> bytes:
    return msgspec.msgpack.encode((queue, message))


def _envelope(message: bytes) -> dict[str, Any]:
    try:
        envelope = json.loads(message)
    except (ValueError, RecursionError):
        raise CannotMove("it is not JSON, so it is none of Celery's messages") from None
    if not isinstance(envelope, dict):
        raise CannotMove("it is none of Celery's messages")
    return envelope


def _tag(message: bytes) -> str:
    """Return the tag that kombu gives each message. One without a tag cannot be moved and needs none."""
    try:
        return str(_envelope(message)["properties"]["delivery_tag"])
    except (CannotMove, KeyError, TypeError):
        return ""


def _unacked(packed: bytes | None) -> tuple[str, bytes]:
    """Return the queue and the content of an unacknowledged message.

    Empty if it was acknowledged meanwhile.
    """
    try:
        message, _, queue = json.loads(packed or b"null")
        return str(queue), json.dumps(message).encode()
    except (ValueError, TypeError, RecursionError):
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
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
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
