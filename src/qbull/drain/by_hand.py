"""Queues that were written by hand: lists, and streams with or without a consumer group."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal
from uuid import uuid4

import msgspec

from qbull.drain.bullmq_options import as_arguments
from qbull.drain.message import CannotMove, ForeignJob, SourceMessage
from qbull.drain.source import (
    DRAIN_BATCH_SIZE,
    MessagePage,
    SourceCollection,
    SourceServer,
    Taken,
    drain_script,
)
from qbull.errors import ArgumentsError, NotFound

DRAIN_CONSUMER = "qbull-drain"
"""The consumer that reads a stream which other groups read too."""
FIRST_ENTRY = "0-0"
GLOB_CHARACTERS = frozenset("*?[")


@dataclass(frozen=True)
class MessageFormat:
    """Where a message has the task, the arguments and the id of its job.

    Args:
        task: the task of all messages; or None.
        task_field: the field that has the task.
        args_field: the field that has the arguments; without it, all other fields are the arguments.
        id_field: the field that has the id; without it, the id is made from the place of the message.
        snake_case: whether the argument `userId` becomes `user_id`.
    """

    task: str | None = None
    task_field: str | None = None
    args_field: str | None = None
    id_field: str | None = None
    snake_case: bool = False

    def __post_init__(self) -> None:
        if self.task is None and self.task_field is None:
            raise ArgumentsError(
                "messages of your own name no task. Give --task NAME, or --task-field FIELD if they do"
            )

    def job(self, name: str, queue: str, body: Any, *, has_texts: bool) -> ForeignJob:
        """The job of a message. `name` is its name while it is set aside."""
        body = dict(body) if isinstance(body, dict) else body
        task, id = self.task or "", name
        if self.task_field is not None:
            task = str(self._field(body, self.task_field, remove=True))
        if self.id_field is not None:
            id = str(self._field(body, self.id_field, remove=False))
        if self.args_field is not None:
            body = self._field(body, self.args_field, remove=True)
            if has_texts:
                body, has_texts = _parsed(body), False
        args, kwargs = as_arguments(body, snake_case=self.snake_case)
        return ForeignJob(id, name, queue, task, args, kwargs, has_texts=has_texts)

    def _field(self, body: Any, field: str, *, remove: bool) -> Any:
        if not isinstance(body, dict) or field not in body:
            raise CannotMove(f'it has no field "{field}"')
        return body.pop(field) if remove else body[field]


class HandMadeRecord(msgspec.Struct):
    """A message while it is set aside."""

    name: str
    queue: str
    body: bytes | dict[str, bytes]


class ListSource:
    """Lists of JSON or text.

    Args:
        old: The server.
        format: Where a message has its task and arguments.
        names: The lists; a name may be a pattern such as `jobs:*`.
        pop: The end at which consumers take messages: "right" for LPUSH and BRPOP.
        processing: Lists of messages that consumers have taken and not finished.
    """

    def __init__(
        self,
        old: SourceServer,
        format: MessageFormat,
        names: Sequence[str],
        *,
        pop: Literal["right", "left"] = "right",
        processing: Sequence[str] = (),
    ) -> None:
        self.old = old
        self._format = format
        self._names = names
        self._kind: Literal["tail", "head"] = "tail" if pop == "right" else "head"
        self._processing = processing

    async def queues(self) -> list[str]:
        """Return the lists that were taken first: those of messages that consumers have not finished."""
        return await _existing(self.old, [*self._processing, *self._names], "list")

    async def collections(self, queue: str) -> list[SourceCollection]:
        return [SourceCollection(queue, self._kind, queue)]

    async def held(self) -> int:
        return 0

    async def page(self, collection: SourceCollection, skip: int) -> MessagePage:
        """Equal messages are different jobs, so each gets a name of its own before it is set aside."""
        values = await self.old.values(collection, skip)
        found = []
        for value, _ in values:
            name = uuid4().hex
            record = HandMadeRecord(name, collection.queue, value)
            found.append(SourceMessage(name, value, msgspec.msgpack.encode(record)))
        return len(values), found

    async def set_aside(self, collection: SourceCollection, messages: Sequence[SourceMessage]) -> list[Taken]:
        return await self.old.set_aside(collection, messages)

    def stays(self, name: str) -> None:
        """Nothing depends on a message that stays."""

    def job(self, stored: bytes) -> ForeignJob:
        record = msgspec.msgpack.decode(stored, type=HandMadeRecord)
        _refuse_other(record, [*self._processing, *self._names])
        assert isinstance(record.body, bytes)
        body = _parsed(_text(record.body))
        return self._format.job(record.name, record.queue, body, has_texts=False)


class StreamSource:
    """Streams.

    Args:
        old: The server.
        format: Where an entry has its task and arguments.
        names: The streams; a name may be a pattern such as `WHATSAPP:*`.
        group: The consumer group whose entries are moved; None if the streams have no groups.
        min_idle: Seconds for which a consumer must have had a pending entry.
        dry: Whether nothing may change on the server.
    """

    def __init__(
        self,
        old: SourceServer,
        format: MessageFormat,
        names: Sequence[str],
        *,
        group: str | None,
        min_idle: float = 60.0,
        dry: bool = False,
    ) -> None:
        self.old = old
        self._format = format
        self._names = names
        self._group = group
        self._min_idle_ms = int(min_idle * 1000)
        self._dry = dry
        self._script = drain_script("set_aside_entries")
        self._shared: dict[str, bool] = {}
        self._after: dict[SourceCollection, str] = {}

    async def queues(self) -> list[str]:
        return await _existing(self.old, self._names, "stream")

    async def collections(self, queue: str) -> list[SourceCollection]:
        """Return the pending entries, then those that no consumer has read.

        If other groups read the stream too, all entries become pending of a consumer of this drain.
        """
        groups = [group["name"] for group in await self._groups(queue)]
        shown = ", ".join(groups) or "none"
        if self._group is None and groups:
            raise NotFound(f'stream "{queue}" has consumer groups; say which with --group. There is: {shown}')
        if self._group is not None and self._group not in groups:
            raise NotFound(f'stream "{queue}" has no group "{self._group}". There is: {shown}')
        self._shared[queue] = len(groups) > 1
        entries = SourceCollection(queue, "entry", queue, self._group or "")
        if self._group is None:
            return [entries]
        pending = SourceCollection(queue, "pending", queue, self._group)
        return [pending] if self._shared[queue] and not self._dry else [pending, entries]

    async def held(self) -> int:
        """Return the number of entries that consumers still have."""
        return sum(
            [
                int((await self.old.call("XPENDING", name, self._group))[0])
                for name in self._shared
                if self._group is not None
            ]
        )

    async def page(self, collection: SourceCollection, skip: int) -> MessagePage:
        if skip == 0:
            self._after.pop(collection, None)
        if collection.kind == "pending":
            if skip == 0 and self._shared[collection.queue] and not self._dry:
                await self._read_as_consumer(collection.name)
            return await self._pending(collection)
        start = self._after.get(collection) or await self._delivered(collection.name)
        found = await self.old.call(
            "XRANGE", collection.name, _next_entry(start), "+", "COUNT", DRAIN_BATCH_SIZE
        )
        if found:
            self._after[collection] = found[-1][0].decode()
        return len(found), [self._message(collection, entry, flat) for entry, flat in found]

    async def set_aside(self, collection: SourceCollection, messages: Sequence[SourceMessage]) -> list[Taken]:
        flat: list[str | bytes] = []
        for message in messages:
            flat += [message.name, message.value, message.stored]
        shared = "yes" if self._shared[collection.queue] else "no"
        where = (collection.name, self._group or "", str(self._min_idle_ms), DRAIN_CONSUMER, shared)
        return await self.old.take(self._script, *where, *flat)

    def stays(self, name: str) -> None:
        """Nothing depends on an entry that stays."""

    def job(self, stored: bytes) -> ForeignJob:
        record = msgspec.msgpack.decode(stored, type=HandMadeRecord)
        _refuse_other(record, self._names)
        assert isinstance(record.body, dict)
        if not record.body:
            raise CannotMove("it is pending, but the stream does not have it any more; acknowledge it there")
        body = {name: _text(value) for name, value in record.body.items()}
        return self._format.job(record.name, record.queue, body, has_texts=True)

    async def _pending(self, collection: SourceCollection) -> MessagePage:
        """Entries that consumers have read and not acknowledged, if they have had them long enough."""
        assert self._group is not None
        start = _next_entry(self._after.get(collection, FIRST_ENTRY))
        found = await self.old.call("XPENDING", collection.name, self._group, start, "+", DRAIN_BATCH_SIZE)
        if found:
            self._after[collection] = found[-1][0].decode()
        messages = []
        for entry, consumer, idle_ms, _ in found:
            if consumer.decode() != DRAIN_CONSUMER and idle_ms < self._min_idle_ms:
                continue
            there = await self.old.call("XRANGE", collection.name, entry, entry)
            messages.append(self._message(collection, entry, there[0][1] if there else []))
        return len(found), messages

    def _message(self, collection: SourceCollection, entry: bytes, flat: list[bytes]) -> SourceMessage:
        # The same entry is another job for another group.
        name = ":".join(part for part in (collection.name, self._group, entry.decode()) if part)
        body = {
            key.decode("utf-8", "replace"): value for key, value in zip(flat[::2], flat[1::2], strict=True)
        }
        record = HandMadeRecord(name, collection.queue, body)
        return SourceMessage(name, entry, msgspec.msgpack.encode(record))

    async def _read_as_consumer(self, stream: str) -> None:
        """Read everything that no consumer of the group has read. It stays pending until it is moved."""
        assert self._group is not None
        reading = ("XREADGROUP", "GROUP", self._group, DRAIN_CONSUMER, "COUNT", DRAIN_BATCH_SIZE)
        while await self.old.call(*reading, "STREAMS", stream, ">"):
            pass

    async def _delivered(self, stream: str) -> str:
        """The last entry that a consumer of the group has read."""
        for group in await self._groups(stream):
            if group["name"] == self._group:
                return group["last-delivered-id"]
        return FIRST_ENTRY

    async def _groups(self, stream: str) -> list[dict[str, str]]:
        found = await self.old.call("XINFO", "GROUPS", stream)
        return [
            {
                key.decode(): value.decode() if isinstance(value, bytes) else str(value)
                for key, value in zip(flat[::2], flat[1::2], strict=True)
            }
            for flat in found
        ]


async def _existing(old: SourceServer, names: Sequence[str], kind: str) -> list[str]:
    """The keys of this type among names and patterns, each once and in this order."""
    found: dict[str, None] = {}
    for name in names:
        is_pattern = not GLOB_CHARACTERS.isdisjoint(name)
        for one in await old.names(name) if is_pattern else [name]:
            there = (await old.call("TYPE", one)).decode()
            if there == kind:
                found[one] = None
            elif there != "none" and not is_pattern:
                raise NotFound(f'"{one}" is a {there}, not a {kind}')
    return list(found)


def _refuse_other(record: HandMadeRecord, names: Sequence[str]) -> None:
    """Leave messages aside that an earlier drain took from other keys: they may have another task."""
    if not any(fnmatchcase(record.queue, name) for name in names):
        raise CannotMove(f'an earlier drain has set it aside from "{record.queue}"; drain that again')


def _next_entry(entry: str) -> str:
    """The smallest id after an entry. Servers before 6.2 know no open ranges."""
    milliseconds, _, number = entry.partition("-")
    return f"{milliseconds}-{int(number or 0) + 1}"


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CannotMove("it is not text; let the old consumers run it") from None


def _parsed(text: Any) -> Any:
    """A JSON value, or the text itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return text
