"""The store of one app on one event loop: its server, the registry of its queues, and its live workers.

The verbs of a queue are in verbs/, the read side is in read/.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.layout import Layout
from qbull.core.parking import UNPARKED_LEVEL
from qbull.errors import ConfigError, NotFound, UnreadableSettings
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection import server
from qbull.store.connection.server import ErrorReply, Server, open_server
from qbull.store.delivery import Delivery, load_trains
from qbull.store.names import CONSUMER_GROUP, Names, ready_stream
from qbull.store.retention import QueueRetention
from qbull.store.retry import Retriable, Retrier, idempotent
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.workers import (
    ProcessUsage,
    RegisteredWorker,
    RegistryReader,
    mark_blocked,
    pack_usage,
    pack_worker,
    unpack_worker,
)

A = TypeVar("A")
log = logging.getLogger("qbull")

_warned_queues: set[str] = set()
"""Warnings that this process has logged; each is logged once."""


class ReadyStream(msgspec.Struct, frozen=True):
    name: str
    partition: Partition
    level: str
    tag: bytes


class Store(Retriable):
    has_audit_log = True
    """Whether changes are written to the audit log; tasks that run inline have no server for it."""

    def __init__(self, url: str, prefix: str) -> None:
        self.server = open_server(url)
        self.names = Names(prefix)
        self._retrier = Retrier(self)
        self.retrier = self._retrier
        self._confirmed: dict[Durability, ConfirmedServer] = {}
        self._retentions: dict[str, QueueRetention] = {}
        self._registry = RegistryReader()

    async def open(self) -> None:
        """Reach the server for the first time, and refuse one that would not keep jobs. Not retried."""
        await self._retrier.open()

    async def close(self) -> None:
        await self.server.close()
        self._retrier.forget()

    async def retrying(self, call: Callable[[], Awaitable[A]]) -> A:
        """Repeat several calls as one while the server is unavailable. Verbs do that by themselves."""
        return await self._retrier.run(call)

    def confirmed(self, durability: Durability) -> ConfirmedServer:
        """The server with a durability profile: it answers once a write is as safe as the profile asks."""
        if durability not in self._confirmed:
            self._confirmed[durability] = ConfirmedServer(self.server, durability)
        return self._confirmed[durability]

    def partition(self, settings: QueueSettings, number: int) -> Partition:
        base = self.names.partition(settings.name, number)
        return Partition(self.server, base, number, settings, self.retention(settings.name), self.retrier)

    def retention(self, queue: str) -> QueueRetention:
        """How long finished jobs of a queue stay."""
        if queue not in self._retentions:
            self._retentions[queue] = QueueRetention(self.server, self.names.queue(queue) + "live")
        return self._retentions[queue]

    async def partitions(self, settings: QueueSettings) -> list[Partition]:
        """All partitions that may have jobs of this queue, the oldest first."""
        layout = await self.layout(settings)
        return [self.partition(settings, n) for generation in layout.generations for n in generation.numbers]

    async def layout(self, settings: QueueSettings) -> Layout:
        """The partitions of a queue as the server has them, or as declared if it does not know the queue."""
        return (await self.registered(settings))[1]

    @idempotent
    async def registered(self, settings: QueueSettings) -> tuple[QueueSettings, Layout]:
        """Settings and partitions as the server has them, or as declared if it does not know the queue."""
        return await self._read_registered(settings.name) or (
            settings,
            Layout(partitions=settings.partitions),
        )

    @idempotent
    async def check_partitions(self, settings: QueueSettings) -> None:
        """Raise ConfigError if the queue is declared with a number of partitions that it never had."""
        known = await self._read_registered(settings.name)
        if known is not None and settings.partitions != known[1].partitions:
            self._check_partition_count(settings, known[1])

    @idempotent
    async def register(
        self, settings: QueueSettings, tasks: Sequence[str], durability: Durability | None = None
    ) -> Layout:
        """Register a queue on the server, so that programs without its code know it.

        Raises ConfigError if the queue never had the declared number of partitions.
        """
        name = self.names.settings(settings.name)
        known = await self._read_registered(settings.name)
        declared, layout = known or (None, Layout(partitions=settings.partitions))
        if settings.partitions != layout.partitions:
            self._check_partition_count(settings, layout)
        if declared != replace(settings, partitions=layout.partitions):
            if declared is not None and (declared.order, declared.lane) != (settings.order, settings.lane):
                self._warn_order_changed(declared, settings)
            followed = replace(settings, partitions=layout.partitions)
            await self.server.script("register", name, "declared", msgspec.json.encode(followed))
            await self.server.script("queue_register", self.names.queues, settings.name)
        if tasks:
            fields = (part for task in tasks for part in (f"task:{task}", "1"))
            await self.server.script("register", name, *fields)
        if durability is not None:
            await self.confirmed(durability).confirm(self.names.queue(settings.name), self.names.app)
        return layout

    def _check_partition_count(self, settings: QueueSettings, layout: Layout) -> None:
        fact = (
            f'queue "{settings.name}": partitions={settings.partitions} but the server has '
            f"{layout.partitions}"
        )
        if settings.partitions not in layout.counts:
            raise ConfigError(
                f'{fact}; run "qbull repartition {settings.name} {settings.partitions}" '
                f"or set partitions={layout.partitions}"
            )
        if fact not in _warned_queues:
            _warned_queues.add(fact)
            log.warning("%s by now; following it; set partitions=%d", fact, layout.partitions)

    @staticmethod
    def _warn_order_changed(before: QueueSettings, settings: QueueSettings) -> None:
        log.warning(
            'queue "%s": declared here with order=%r, lane=%r, before with order=%r, lane=%r; '
            "jobs follow what their producer "
            "declares: declare it alike in all programs, once all are deployed",
            settings.name,
            settings.order,
            settings.lane,
            before.order,
            before.lane,
        )

    @idempotent
    async def primaries(self) -> list[Server]:
        """The servers that keep jobs: one, or all primaries of a cluster."""
        return await self.server.primaries()

    @idempotent
    async def queues(self) -> list[str]:
        return sorted(name.decode() for name in await self.server.call("SMEMBERS", self.names.queues))

    @idempotent
    async def settings(self, queue: str) -> QueueSettings:
        known = await self._read_registered(queue)
        if known is None:
            others = ", ".join(await self.queues()) or "none yet"
            raise NotFound(f'queue "{queue}": not on this server; it has: {others}')
        return known[0]

    @idempotent
    async def has_queue(self, queue: str) -> bool:
        """Whether the queue is still registered."""
        (declared,) = await self.server.call("HMGET", self.names.settings(queue), "declared")
        return declared is not None

    @idempotent
    async def tasks(self, queue: str) -> list[str]:
        fields = await self.server.call("HKEYS", self.names.settings(queue))
        return sorted(field.decode().removeprefix("task:") for field in fields if field.startswith(b"task:"))

    async def _read_registered(self, queue: str) -> tuple[QueueSettings, Layout] | None:
        """The registered settings and layout of a queue; the layout decides how many partitions it has."""
        declared, packed = await self.server.call("HMGET", self.names.settings(queue), "declared", "layout")
        if declared is None:
            return None
        try:
            settings = msgspec.json.decode(declared, type=QueueSettings)
            if packed is None:
                return settings, Layout(partitions=settings.partitions)
            layout = msgspec.json.decode(packed, type=Layout)
            return replace(settings, partitions=layout.partitions), layout
        except msgspec.MsgspecError as error:
            raise UnreadableSettings(
                f'queue "{queue}": its settings on the server cannot be read: {error}'
            ) from None

    # Verbs that work on several partitions at a time.

    async def streams(self, partitions: Sequence[Partition]) -> dict[bytes, ReadyStream]:
        """The ready streams of these partitions by name, the most urgent level first."""
        found = [
            ReadyStream(ready_stream(partition.base, level), partition, level, level.encode())
            for partition in partitions
            for level in await partition.priority_levels()
        ]
        found.sort(key=lambda stream: stream.level)
        return {stream.name.encode(): stream for stream in found}

    async def fetch(
        self,
        streams: dict[bytes, ReadyStream],
        worker: str,
        count: int,
        block: float | None,
        *,
        again: bool = False,
    ) -> list[Delivery]:
        """Fetch up to `count` entries of each stream; wait up to `block` seconds for the first.

        `again` reads entries that this worker has already: after a lost reply, it may not know some of them.
        """
        wait = () if block is None else ("BLOCK", max(int(block * 1000), 1))
        asked = time.monotonic()
        reply = await self.server.call(
            "XREADGROUP", "GROUP", CONSUMER_GROUP, worker, "COUNT", count, *wait,
            "STREAMS", *streams, *("0" if again else ">" for _ in streams),
            timeout=server.CALL_TIMEOUT_SECONDS + (block or 0.0),
        )  # fmt: skip
        if not reply:
            return []
        deliveries = [
            Delivery(stream.partition, stream.level, entry, fields, stream.tag + entry, asked)
            for name, entries in reply
            for stream in (streams[name],)
            for entry, fields in entries
            if fields is not None
        ]
        deliveries = await load_trains(deliveries, again=again)
        return [delivery._replace(is_repeated=True) for delivery in deliveries] if again else deliveries

    async def fetch_some(self, streams: dict[bytes, ReadyStream], worker: str, count: int) -> list[Delivery]:
        """Fetch up to `count` entries in total, from the first streams first. Does not wait."""
        asked = time.monotonic()
        base = next(iter(streams.values())).partition.base
        reply = await self.server.script("fetch", base, worker, count, *streams)
        deliveries = [
            Delivery(stream.partition, stream.level, entry, fields, stream.tag + entry, asked)
            for name, entry, fields in reply
            for stream in (streams[name],)
        ]
        return await load_trains(deliveries)

    def unparked_stream(self, partition: Partition) -> ReadyStream:
        """The stream through which parked jobs of a partition are delivered."""
        level = UNPARKED_LEVEL
        return ReadyStream(ready_stream(partition.base, level), partition, level, level.encode())

    async def unpark(
        self,
        partition: Partition,
        worker: str,
        need: str,
        count: int,
        *,
        min_age: float = 0.0,
        ids: Sequence[bytes] = (),
    ) -> list[Delivery]:
        """Take up to `count` parked jobs with this need. If the reply is lost, `unparked` finds them.

        A job whose lane has no room waits at the head of its lane instead.

        Args:
            partition: The partition.
            worker: The worker that takes them.
            need: The need.
            count: The maximum number of jobs.
            min_age: Seconds for which a job must have been parked.
            ids: If given, only these jobs.
        """
        asked, level = time.monotonic(), UNPARKED_LEVEL
        limit, age_ms = partition.settings.lane_limit, int(min_age * 1000)
        reply = await self.server.script(
            "unpark", partition.base, limit, worker, count, age_ms, len(ids), *ids, need
        )
        return [
            Delivery(partition, level, entry, fields, level.encode() + entry, asked)
            for entry, fields in zip(reply[::2], reply[1::2], strict=True)
        ]

    async def unparked(self, partition: Partition, worker: str) -> list[Delivery]:
        """The deliveries that this worker has of jobs that were parked."""
        stream = self.unparked_stream(partition)
        try:
            return await self.fetch({stream.name.encode(): stream}, worker, 10_000, None, again=True)
        except ErrorReply as error:
            if error.code != "NOGROUP":
                raise
            return []

    @idempotent
    async def ensure_groups(self, streams: dict[bytes, ReadyStream]) -> None:
        for stream in streams.values():
            await stream.partition.ensure_groups([stream.level])

    # Workers.

    @idempotent
    async def heartbeat(
        self, ttl: float, workers: Sequence[str], usage: Mapping[str, ProcessUsage] | None = None
    ) -> list[str]:
        """Record a heartbeat for these workers; returns the workers whose time has run out."""
        pairs = (part for worker in workers for part in (worker, pack_usage((usage or {}).get(worker))))
        dead = await self.server.script("heartbeat", self.names.app, int(ttl * 1000), *pairs)
        return [worker.decode() for worker in dead]

    @idempotent
    async def register_worker(self, worker: str, member: RegisteredWorker, ttl: float) -> None:
        """Register a worker with its host, process and queues."""
        await self.server.script(
            "worker_register", self.names.app, worker, int(ttl * 1000), pack_worker(member)
        )

    @idempotent
    async def mark_blocked(self, worker: str, since_ms: int, tasks: Sequence[str] = ()) -> bool:
        """Mark in a registration that the event loop of the worker stands still.

        Returns whether the mark is there. A worker that is not registered is not marked.

        Args:
            worker: The id of the worker.
            since_ms: The server's time at which the loop last ran; 0 if it runs again.
            tasks: The task that blocks it, or all that it may be.
        """
        before = await self.server.call("HGET", self.names.roster, worker)
        if before is None:
            return False
        marked = mark_blocked(unpack_worker(before), since_ms, tasks)
        if marked is None:
            return True
        packed = pack_worker(marked)
        return bool(await self.server.script("worker_update", self.names.app, worker, before, packed))

    @idempotent
    async def forget_worker(self, worker: str, *, certain: bool = False, lost: bool = False) -> bool:
        """Forget a worker whose deliveries were taken back, unless it is alive again.

        `certain` forgets it in any case; `lost` counts it as a worker that did not stop on purpose.
        """
        return bool(
            await self.server.script("worker_forget", self.names.app, worker, int(certain), int(lost))
        )

    @idempotent
    async def workers(self) -> dict[str, RegisteredWorker]:
        """The live workers, as they have registered."""
        return self._registry.unpack(await self.server.script("workers", self.names.app))

    @idempotent
    async def worker(self, worker: str) -> RegisteredWorker:
        """A registered worker, even if it sends no heartbeats any more."""
        said = await self.server.call("HGET", self.names.roster, worker)
        return unpack_worker(said or b"")

    @idempotent
    async def remembered_workers(self) -> set[str]:
        """The workers that have sent a heartbeat and were not forgotten."""
        return {name.decode() for name in await self.server.call("ZRANGE", self.names.workers, 0, -1)}

    @idempotent
    async def consumers(self, stream: ReadyStream) -> dict[str, int]:
        """The consumers of a stream, and for how many milliseconds each has been idle."""
        try:
            reply = await self.server.call("XINFO", "CONSUMERS", stream.name, CONSUMER_GROUP)
        except ErrorReply:
            return {}
        rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in reply]
        return {row[b"name"].decode(): row[b"idle"] for row in rows}
