"""Flows: plant jobs that wait for others, and bring the end of a job to those that wait for it.

Every step is one script in one partition, which leaves a note in `outgoing` where something is to be done in another one. The note
goes when that is done. Anybody may bring it, any number of times and several at once: what has been planted is not planted again, and
who was told is not told again. Workers do (worker/flow_dispatcher.py) for the partitions that they read, and who enqueues a flow plants it.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from qbull.config import QueueSettings
from qbull.core.durability import Durability, profile_of
from qbull.core.flow import (
    NEVER_DUE_MS,
    Dependency,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    decode_dependency,
    decode_flow_plan,
    encode,
)
from qbull.core.layout import Layout
from qbull.core.record import Ending, UnreadableRecord, append_ending, body_of, split_ending
from qbull.errors import NotFound, ServerError
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.fan_out import run_scripts
from qbull.store.connection.server import Server
from qbull.store.read import inspect
from qbull.store.retry import StoreVerbs, idempotent
from qbull.store.store import Store
from qbull.store.verbs.layout import follow_successor
from qbull.store.verbs.partition import MAX_JOBS_PER_CALL, Partition, successor_in

log = logging.getLogger("qbull")

FLOW_MESSAGE_BATCH_SIZE = 100
"""Notes that are read at a time."""
RECHECK_BATCH_SIZE = 10
"""Jobs that wait, and of each of those that it waits for, which are looked at in one look."""
FLOW_SETTINGS_TTL_SECONDS = 30.0
"""Seconds after which a queue's settings are looked at again."""
FLOW_DELIVERY_RETRY_SECONDS = 0.05
"""Seconds after which what could not be brought yet is tried again."""
DISPATCHER_LEASE_MS = 1000
"""For how long one courier brings what a partition has to say, before another one may."""
FLOW_MESSAGES_TTL_SECONDS = 20.0
"""Seconds for which what was read of `outgoing` is brought. Much later, others may have brought it, and it may be forgotten."""
ENDING_TEXTS = {
    "f": "failed",
    "x": "was cancelled",
    "-": "was removed",
    "t": "has not begun: its id is taken by another job",
    "u": "was not needed",
}


class DependencyEnding(NamedTuple):
    """Of one job, for one that waits for it: in which note it is, and what is to be said."""

    entry: bytes
    dependent: Dependent
    flow: str
    ending_letter: str
    dependency: bytes
    ending: bytes


class FlowMessage(NamedTuple):
    """An entry of `outgoing`."""

    partition: Partition
    entry: bytes


class FlowStore(StoreVerbs):
    """For one app on one event loop."""

    def __init__(self, store: Store, durability: Durability | None = None) -> None:
        super().__init__(store)
        self._known: dict[str, tuple[QueueSettings, Layout, float]] = {}
        waits = durability is not None and profile_of(durability).waits_for_replicas
        self._server = store.confirmed(durability) if durability is not None and waits else store.server

    @idempotent
    async def start(self, plan: FlowPlan, confirmed: ConfirmedServer | None) -> bool:
        """Plant a new flow; False where its first job is there already, and nothing was planted.

        Once its first jobs are there the rest follows by itself: should the server be away then, others plant it.
        """
        planted = await self._enqueue_next(plan, confirmed or self._server, first=True)
        if planted is None:
            return False
        try:
            await self._enqueue_remaining(*planted, confirmed or self._server)
        except ServerError as error:
            log.info("flow %s: workers plant the rest of it: %s", plan.flow, error)
        return True

    async def enqueue_rest(self, plan: FlowPlan) -> None:
        """What is left of a flow."""
        planted = await self._enqueue_next(plan, self._server)
        if planted is not None:
            await self._enqueue_remaining(*planted, self._server)

    @idempotent
    async def finish(self, flow: str, queues: Iterable[str]) -> bool:
        """Plant what is noted as left of a flow in any of its queues; False where nothing is."""
        found = False
        for queue in queues:
            with suppress(NotFound):  # it is gone, with all that was in it
                for partition in await self._store.partitions((await self._queue(queue))[0]):
                    async for entry, plan in _remaining_messages(partition, flow):
                        await self.enqueue_rest(plan)
                        await drop_messages(partition, [entry])
                        found = True
        return found

    async def dispatch(self, partition: Partition, dispatcher: str = "") -> float | None:
        """Bring what is to be brought from a partition, a bounded number of notes. Seconds after which to ask again; None: that was all.

        With a `courier`, only where no other one is at it. Notes that cannot be brought do not hold up those behind them.
        """
        until, start = time.monotonic() + FLOW_MESSAGES_TTL_SECONDS, b"-"
        away: dict[tuple[str, int] | None, ServerError] = {}
        while True:
            entries = await _read_messages(partition, start, dispatcher)
            if entries == b"busy":
                return DISPATCHER_LEASE_MS / 1000
            brought: list[bytes] = []
            kept: set[bytes] = set()
            ends: dict[tuple[str, int], list[DependencyEnding]] = defaultdict(list)
            for entry, fields in entries:
                if time.monotonic() > until:
                    break
                brought.append(entry)
                try:
                    for end in await self._read(entry, partition.settings.name, fields):
                        ends[end.dependent.queue, await self._home(end.dependent)].append(end)
                except ServerError as error:
                    away[None] = error
                    kept.add(entry)
            for place, some in ends.items():
                try:
                    if place in away or time.monotonic() > until:
                        kept.update(end.entry for end in some)
                    else:
                        kept |= await self._deliver(*place, some)
                except ServerError as error:
                    away[place] = error
                    kept.update(end.entry for end in some)
            await drop_messages(partition, [entry for entry in brought if entry not in kept])
            is_all = len(entries) < FLOW_MESSAGE_BATCH_SIZE
            if not away:
                return (
                    FLOW_DELIVERY_RETRY_SECONDS
                    if kept
                    else 0.0
                    if len(brought) < len(entries) or not is_all
                    else None
                )
            if is_all or time.monotonic() > until:
                raise next(iter(away.values()))
            start = b"(" + entries[-1][0]

    async def recheck(self, partition: Partition, after: int) -> int:
        """Ask what became of those that some jobs here wait for: a server that was replaced may have lost what it was told.

        A few jobs at a time, from a position on; gives where to go on.
        """
        ids = await partition.server.call(
            "ZRANGE",
            partition.base + "delayed",
            NEVER_DUE_MS,
            NEVER_DUE_MS,
            "BYSCORE",
            "LIMIT",
            after,
            RECHECK_BATCH_SIZE,
        )
        for id in ids:
            open_ = [told for letter, told in await dependencies_of(partition, id) if letter == "w"]
            for told in open_[:RECHECK_BATCH_SIZE]:
                ends = [end for end in await self._read_endings(told) if end.dependent.id == id.decode()]
                if ends:
                    await deliver_endings(partition, ends, self._server)
        return after + RECHECK_BATCH_SIZE if len(ids) == RECHECK_BATCH_SIZE else 0

    async def _read_endings(self, told: Dependency) -> list[DependencyEnding]:
        """What is to be told of a job, where it has ended and is still kept."""
        try:
            settings, layout = await self._queue(told.queue)
        except NotFound:
            return []
        home = layout.current.home_of(told.together, told.id)
        found = await inspect.find(self._store.partition(settings, home), told.id)
        if found is None or found.ending is None:
            return []
        letter = inspect.POSITION_PREFIXES[found.state].decode()
        try:
            return _endings_of(b"", told.queue, letter + told.id, found.record + append_ending(found.ending))
        except UnreadableRecord:
            return []

    async def _read(self, entry: bytes, queue: str, fields: Sequence[bytes]) -> list[DependencyEnding]:
        """Do what a note says; gives the ends that are to be told. What cannot be read is said and dropped."""
        ends: list[DependencyEnding] = []
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            try:
                if name[:1] == b"n":
                    await self.enqueue_rest(decode_flow_plan(value))
                else:
                    some = _endings_of(entry, queue, name.decode(), value)
                    for end in some:
                        await self._queue(end.dependent.queue)
                    ends += some
            except (UnreadableRecord, msgspec.MsgspecError, UnicodeDecodeError, NotFound) as error:
                log.error('queue "%s": something of a flow is dropped: %s', queue, error)
        return ends

    # Planting.

    async def _enqueue_remaining(
        self, rest: FlowPlan, note: FlowMessage, server: Server | ConfirmedServer
    ) -> None:
        while rest.seeds:
            planted = await self._enqueue_next(rest, server)
            await drop_messages(note.partition, [note.entry])
            if planted is None:
                return
            rest, note = planted

    async def _enqueue_next(
        self, plan: FlowPlan, server: Server | ConfirmedServer, *, first: bool = False
    ) -> tuple[FlowPlan, FlowMessage] | None:
        """Plant the jobs that go to one partition. What is left then, and where it is noted; None where they were planted before."""
        while True:
            partition, some = await self._next(plan)
            taken = await self._in_older(plan, some)
            if taken is None:
                return None
            rest = plan.after(len(some))
            answer: bytes = await server.script(
                "flow_start" if first else "flow_continue",
                partition.base,
                plan.token,
                partition.settings.lane_limit,
                plan.flow,
                encode(rest) if rest.seeds else b"",
                *_arguments(some, taken),
            )
            word, _, entry = answer.partition(b" ")
            if word == b"known":
                return None
            if word == b"planted":
                return rest, FlowMessage(partition, entry)
            settings = partition.settings  # closed: its keys are elsewhere now
            self._keep(settings, await follow_successor(self._store, settings, successor_in(answer)))

    async def _next(self, plan: FlowPlan) -> tuple[Partition, list[FlowJobSeed]]:
        """The partition of the first job, and the jobs that go there with it."""
        first = plan.seeds[0]
        settings, layout = await self._queue(first.queue)
        home = layout.current.home_of(first.together, first.id)

        def is_with_it(seed: FlowJobSeed) -> bool:
            return seed.queue == first.queue and layout.current.home_of(seed.together, seed.id) == home

        some = list(takewhile(is_with_it, plan.seeds[:MAX_JOBS_PER_CALL]))
        return self._store.partition(settings, home), some

    async def _in_older(self, plan: FlowPlan, seeds: Sequence[FlowJobSeed]) -> set[str] | None:
        """Ids that older partitions have of somebody else's jobs; None where these were planted there."""
        settings, layout = await self._queue(seeds[0].queue)
        taken: set[str] = set()
        for generation in layout.generations[:-1]:
            homes: dict[int, list[FlowJobSeed]] = defaultdict(list)
            for seed in seeds:
                homes[generation.home_of(seed.together, seed.id)].append(seed)
            for number, some in homes.items():
                partition = self._store.partition(settings, number)
                for id in await partition.has([seed.id for seed in some]):
                    found = await inspect.find(partition, id)
                    if found is not None and found.body().flow == plan.flow:
                        return None
                    taken.add(id)
        return taken

    # Telling.

    async def _deliver(self, queue: str, number: int, ends: Sequence[DependencyEnding]) -> set[bytes]:
        """Tell those that wait. Gives the notes that are to be brought once more."""
        settings, _ = await self._queue(queue)
        again: set[bytes] = set()
        async for partition in self._candidate_partitions(settings, number):
            unknown: list[DependencyEnding] = []
            for start in range(0, len(ends), MAX_JOBS_PER_CALL):
                some = ends[start : start + MAX_JOBS_PER_CALL]
                for end, word in zip(some, await deliver_endings(partition, some, self._server), strict=True):
                    if word == "again":
                        again.add(end.entry)
                    elif word == "unknown":
                        unknown.append(end)
            ends = unknown
            if not ends:
                break
        return again  # whoever is nowhere was removed, or is not kept any more

    async def _candidate_partitions(self, settings: QueueSettings, number: int) -> AsyncIterator[Partition]:
        """First where it should be, then all that it may be in, the oldest first: what moves is not missed."""
        yield self._store.partition(settings, number)
        for partition in await self._store.partitions(settings):
            yield partition

    async def _home(self, link: Dependent) -> int:
        return (await self._queue(link.queue))[1].current.home_of(link.together, link.id)

    async def _queue(self, name: str) -> tuple[QueueSettings, Layout]:
        known = self._known.get(name)
        if known is None or time.monotonic() > known[2]:
            settings = await self._store.settings(name)
            return self._keep(settings, await self._store.layout(settings))
        return known[:2]

    def _keep(self, settings: QueueSettings, layout: Layout) -> tuple[QueueSettings, Layout]:
        self._known[settings.name] = settings, layout, time.monotonic() + FLOW_SETTINGS_TTL_SECONDS
        return settings, layout


async def _remaining_messages(partition: Partition, flow: str) -> AsyncIterator[tuple[bytes, FlowPlan]]:
    """The notes of a partition that say what is left of a flow."""
    start = b"-"
    while entries := await _read_messages(partition, start):
        for entry, fields in entries:
            if fields[0] == b"n" + flow.encode():
                yield entry, decode_flow_plan(fields[1])
        start = b"(" + entries[-1][0]


async def _read_messages(partition: Partition, start: bytes, dispatcher: str = "") -> Any:
    """Some notes, from a place on. With a `courier`, b"busy" where another one is at it."""
    if dispatcher:
        return await partition.server.script(
            "flow_outbox", partition.base, dispatcher, DISPATCHER_LEASE_MS, FLOW_MESSAGE_BATCH_SIZE, start
        )
    return await partition.server.call(
        "XRANGE", partition.base + "outgoing", start, "+", "COUNT", FLOW_MESSAGE_BATCH_SIZE
    )


async def drop_messages(partition: Partition, entries: Sequence[bytes]) -> None:
    """These notes were brought."""
    if entries:
        await partition.server.call("XDEL", partition.base + "outgoing", *entries)


async def deliver_endings(
    partition: Partition, ends: Sequence[DependencyEnding], server: Server | ConfirmedServer | None = None
) -> list[str]:
    """Tell jobs of a partition of these ends; for each "joined", "known", "unknown" or "again"."""
    keep = partition.settings.keep
    failed = -1 if keep.failed is None else keep.failed
    failed_ms = -1 if keep.failed_for is None else int(keep.failed_for * 1000)
    flat: list[str | bytes | int] = []
    for end in ends:
        flat += (
            end.dependent.id,
            end.flow,
            end.dependent.position,
            end.ending_letter,
            end.dependency,
            end.ending,
        )
    answer: bytes = await (server or partition.server).script(
        "flow_deliver", partition.base, partition.settings.lane_limit, failed, failed_ms, *flat
    )
    return answer.decode().split()


async def dependencies_of(partition: Partition, id: bytes | str) -> list[tuple[str, Dependency]]:
    """What a job of a flow knows of those that it waits for or has waited for: letter and facts, in their order."""
    return (await dependencies_and_mode(partition, id))[1]


async def dependencies_and_mode(
    partition: Partition, id: bytes | str
) -> tuple[str, list[tuple[str, Dependency]]]:
    """The same, and what the job does when one of them does not complete (core/flow.py)."""
    name = partition.base.encode() + b"job:" + (id if isinstance(id, bytes) else id.encode())
    flat = await partition.server.call("HGETALL", name)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    found = {
        int(field[len(b"child:") :]): (chr(value[0]), decode_dependency(value[1:]))
        for field, value in fields.items()
        if field.startswith(b"child:")
    }
    return fields.get(b"mode", b"").decode(), [found[position] for position in sorted(found)]


@idempotent
async def sample_flow_jobs(partitions: Sequence[Partition], limit: int) -> list[str]:
    """Jobs that wait for others of their flow, and such as ended lately: about so many, over all partitions."""
    each = max(1, limit // len(partitions))
    calls = [(partition.base, each, max(1, each // 4)) for partition in partitions]
    found = await run_scripts(partitions[0].server, "flow_jobs", calls)
    return [id.decode("utf-8", "replace") for ids in found for id in ids]


def _arguments(seeds: Sequence[FlowJobSeed], taken: set[str]) -> list[str | bytes | int]:
    flat: list[str | bytes | int] = []
    for seed in seeds:
        given = 2 if seed.id in taken else int(seed.given)
        flat += (seed.id, seed.when, seed.record, given, seed.mode, len(seed.awaits))
        flat += (encode(told) for told in seed.awaits)
    return flat


def _endings_of(entry: bytes, queue: str, name: str, value: bytes) -> list[DependencyEnding]:
    """What a note says of the end of a job, for each that waits for it."""
    letter, id = name[0], name[1:]
    record, ending = split_ending(value) if letter in "cfx" else (value, Ending(0, 0.0, ""))
    body = body_of(record)
    error = None if letter == "c" else ending.error or ENDING_TEXTS[letter]
    told = encode(Dependency(queue, id, body.task, ending.result, error, ending.stacktrace, ending.stored))
    because = f": {ending.error}" if ending.error else ""
    end = append_ending(
        Ending(
            0,
            0.0,
            "",
            error=f'job {id} ({body.task}) of queue "{queue}" {ENDING_TEXTS.get(letter, "")}{because}',
        )
    )
    return [
        DependencyEnding(entry, link, body.flow, letter, told, end)
        for link in body.tells
        if letter not in link.unless
    ]
