"""Flows: enqueue jobs that depend on others, and deliver the ending of a job to its dependents.

Each step is one script in one partition. If it needs a step in another partition, it leaves a message in its
`outgoing` stream, which is deleted once that step is done. Anybody may dispatch a message, repeatedly and
concurrently: a job is enqueued once, and an ending is delivered once. Workers dispatch the messages of the
partitions that they read (worker/flow_dispatcher.py); the producer of a flow enqueues as much of it as it
can.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile

import msgspec

from qbull.config import QueueSettings
from qbull.core.durability import Durability, profile_of
from qbull.core.flow import (
    NEVER_DUE_MS,
    WAITING_LETTER,
    Dependency,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    Follower,
    decode_dependency,
    decode_flow_plan,
    encode,
)
from qbull.core.layout import Layout
from qbull.core.record import UnreadableRecord, append_ending
from qbull.core.signals import WAITING_DUE_MS
from qbull.errors import NotFound, ServerAway, ServerError
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.server import Server
from qbull.store.read import inspect
from qbull.store.retry import StoreVerbs, idempotent
from qbull.store.store import Store
from qbull.store.verbs.closed_partition import successor_in
from qbull.store.verbs.flow_messages import (
    DISPATCHER_LEASE_MS,
    FLOW_MESSAGE_BATCH_SIZE,
    DependencyEnding,
    FlowMessage,
    awaited_by,
    cancel_called,
    deliver_endings,
    drop_messages,
    ending_for,
    endings_in,
    flows_of,
    read_messages,
    remaining_messages,
    removed_ending,
)
from qbull.store.verbs.layout import follow_successor
from qbull.store.verbs.partition import MAX_JOBS_PER_CALL, Partition

log = logging.getLogger("qbull")

RECHECK_BATCH_SIZE = 10
"""Waiting jobs per recheck, and dependencies of each of them."""
FLOW_SETTINGS_TTL_SECONDS = 30.0
"""How long the settings of a queue are cached."""
FLOW_DELIVERY_RETRY_SECONDS = 0.05
"""Pause before an ending that could not be delivered is tried again."""
FLOW_MESSAGES_TTL_SECONDS = 20.0
"""How long messages are dispatched after they were read.

Later, another dispatcher may have done it already.
"""


class FlowStore(StoreVerbs):
    """The flows of one app, on one event loop."""

    def __init__(self, store: Store, durability: Durability | None = None) -> None:
        super().__init__(store)
        self._known: dict[str, tuple[QueueSettings, Layout, float]] = {}
        waits = durability is not None and profile_of(durability).waits_for_replicas
        self._server = store.confirmed(durability) if durability is not None and waits else store.server

    @idempotent
    async def start(self, plan: FlowPlan, confirmed: ConfirmedServer | None) -> bool:
        """Enqueue a new flow; False if its first job exists already, and nothing was enqueued.

        Once the first jobs exist, the rest follows: if the server becomes unavailable, workers enqueue it.
        """
        enqueued = await self._enqueue_next(plan, confirmed or self._server, first=True)
        if enqueued is None:
            return False
        try:
            await self._enqueue_remaining(*enqueued, confirmed or self._server)
        except ServerError as error:
            log.info("flow %s: workers will enqueue the rest: %s", plan.flow, error)
        return True

    async def enqueue_rest(self, plan: FlowPlan) -> None:
        """Enqueue the jobs of a flow that are left."""
        enqueued = await self._enqueue_next(plan, self._server)
        if enqueued is not None:
            await self._enqueue_remaining(*enqueued, self._server)

    @idempotent
    async def finish(self, flow: str, queues: Iterable[str]) -> bool:
        """Enqueue the rest of a flow from the messages in its queues; False if nothing is left."""
        found = False
        for queue in queues:
            # A queue that was removed has no messages.
            with suppress(NotFound):
                for partition in await self._store.partitions((await self._queue(queue))[0]):
                    async for entry, plan in remaining_messages(partition, flow):
                        await self.enqueue_rest(plan)
                        await drop_messages(partition, [entry])
                        found = True
        return found

    async def dispatch(self, partition: Partition, dispatcher: str = "") -> float | None:
        """Dispatch the messages of a partition, a bounded number of them.

        A `dispatcher` that gives its name works only while no other one does. Messages that cannot be
        dispatched do not block those behind them. Returns the seconds after which to call again, or None if
        nothing is left.
        """
        until, start = time.monotonic() + FLOW_MESSAGES_TTL_SECONDS, b"-"
        failures: dict[tuple[str, int] | None, ServerError] = {}
        while True:
            entries = await read_messages(partition, start, dispatcher)
            if entries == b"busy":
                return DISPATCHER_LEASE_MS / 1000
            dispatched: list[bytes] = []
            kept: set[bytes] = set()
            ends: dict[tuple[str, int], list[DependencyEnding]] = defaultdict(list)
            for entry, fields in entries:
                if time.monotonic() > until:
                    break
                dispatched.append(entry)
                if failures and any(name[:1] == b"k" for name in fields[::2]):
                    # The job that it cancels may not be enqueued yet.
                    kept.add(entry)
                    continue
                try:
                    for end in await self._read(entry, partition.settings.name, fields):
                        ends[end.dependent.queue, await self._home(end.dependent)].append(end)
                except ServerError as error:
                    failures[None] = error
                    kept.add(entry)
            for place, some in ends.items():
                try:
                    if place in failures or time.monotonic() > until:
                        kept.update(end.entry for end in some)
                    else:
                        kept |= await self._deliver(*place, some)
                except ServerError as error:
                    failures[place] = error
                    kept.update(end.entry for end in some)
            await drop_messages(partition, [entry for entry in dispatched if entry not in kept])
            is_all = len(entries) < FLOW_MESSAGE_BATCH_SIZE
            if not failures:
                return (
                    FLOW_DELIVERY_RETRY_SECONDS
                    if kept
                    else 0.0
                    if len(dispatched) < len(entries) or not is_all
                    else None
                )
            if is_all or time.monotonic() > until:
                raise next(iter(failures.values()))
            start = b"(" + entries[-1][0]

    async def recheck(self, partition: Partition, after: int) -> int:
        """Look up the dependencies of waiting jobs: a failover may have lost endings that were delivered.

        Checks a few jobs, starting with number `after`. Returns the number to continue with.
        """
        ids = await partition.server.call(
            "ZRANGE",
            partition.base + "delayed",
            NEVER_DUE_MS,
            WAITING_DUE_MS,
            "BYSCORE",
            "LIMIT",
            after,
            RECHECK_BATCH_SIZE,
        )
        for id in ids:
            for follower, dependency in (await awaited_by(partition, id))[:RECHECK_BATCH_SIZE]:
                ends = await self._read_endings(dependency, follower)
                if ends:
                    await deliver_endings(partition, ends, self._server)
        return after + RECHECK_BATCH_SIZE if len(ids) == RECHECK_BATCH_SIZE else 0

    async def tell_removed(self, follower: Follower, dependency: Dependency) -> None:
        """Deliver to a job that the one which it wanted to follow does not exist any more."""
        dependent = follower.dependent
        await self._deliver(
            dependent.queue, await self._home(dependent), [removed_ending(follower, dependency)]
        )

    async def _read_endings(self, dependency: Dependency, follower: Follower) -> list[DependencyEnding]:
        """The endings of a job for one that waits; none if it has not ended or is not kept."""
        try:
            settings, layout = await self._queue(dependency.queue)
        except NotFound:
            return []
        home = layout.current.home_of(dependency.together, dependency.id)
        found = await inspect.find(self._store.partition(settings, home), dependency.id)
        if found is None or found.ending is None:
            return []
        name = inspect.POSITION_PREFIXES[found.state].decode() + dependency.id
        value = found.record + append_ending(found.ending)
        try:
            if found.body().flow != follower.flow:
                return [ending_for(follower, b"", dependency.queue, name, value)]
            ends = endings_in(b"", dependency.queue, name, value)
        except UnreadableRecord:
            return []
        return [end for end in ends if end.dependent.id == follower.dependent.id]

    async def _read(self, entry: bytes, queue: str, fields: Sequence[bytes]) -> list[DependencyEnding]:
        """Enqueue what a message asks for; returns the endings to deliver.

        Unreadable parts are logged and dropped.
        """
        ends: list[DependencyEnding] = []
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            try:
                if name[:1] == b"n":
                    await self.enqueue_rest(decode_flow_plan(value))
                elif name[:1] == b"k":
                    await self._cancel_called(decode_dependency(value))
                else:
                    some = endings_in(entry, queue, name.decode(), value)
                    for end in some:
                        await self._queue(end.dependent.queue)
                    ends += some
            except (UnreadableRecord, msgspec.MsgspecError, ValueError, NotFound) as error:
                log.error('queue "%s": part of a flow cannot be read and is dropped: %s', queue, error)
        return ends

    # Enqueueing.

    async def _enqueue_remaining(
        self, rest: FlowPlan, message: FlowMessage, server: Server | ConfirmedServer
    ) -> None:
        while rest.seeds:
            enqueued = await self._enqueue_next(rest, server)
            await drop_messages(message.partition, [message.entry])
            if enqueued is None:
                return
            rest, message = enqueued

    async def _enqueue_next(
        self, plan: FlowPlan, server: Server | ConfirmedServer, *, first: bool = False
    ) -> tuple[FlowPlan, FlowMessage] | None:
        """Enqueue the next jobs that share a partition.

        Returns the rest of the flow and the message that holds it, or None if these jobs were enqueued
        before.
        """
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
            # The partition is closed: its keys have moved.
            settings = partition.settings
            self._keep(settings, await follow_successor(self._store, settings, successor_in(answer)))

    async def _next(self, plan: FlowPlan) -> tuple[Partition, list[FlowJobSeed]]:
        """The partition of the first job, and the jobs that go to the same partition."""
        first = plan.seeds[0]
        settings, layout = await self._queue(first.queue)
        home = layout.current.home_of(first.together, first.id)

        def is_with_it(seed: FlowJobSeed) -> bool:
            return seed.queue == first.queue and layout.current.home_of(seed.together, seed.id) == home

        some = list(takewhile(is_with_it, plan.seeds[:MAX_JOBS_PER_CALL]))
        return self._store.partition(settings, home), some

    async def _in_older(self, plan: FlowPlan, seeds: Sequence[FlowJobSeed]) -> set[str] | None:
        """Ids that jobs outside the flow have in older partitions; None if these jobs are there already."""
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
                    if found is not None and plan.flow in flows_of(found.body()):
                        return None
                    taken.add(id)
        return taken

    # Delivering.

    async def _cancel_called(self, called: Dependency) -> None:
        """Cancel a job whose caller was cancelled. One that has ended, or is not kept, stays as it is."""
        settings, layout = await self._queue(called.queue)
        home = layout.current.home_of(called.together, called.id)
        async for partition in self._candidate_partitions(settings, home):
            word = await cancel_called(partition, called.id, self._server)
            if word == "moving":
                raise ServerAway(f'queue "{called.queue}": job {called.id} is moving to another partition')
            if word != "unknown":
                return

    async def _deliver(self, queue: str, number: int, ends: Sequence[DependencyEnding]) -> set[bytes]:
        """Deliver endings to the dependents; returns the messages to dispatch again."""
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
        # A dependent that is in no partition was removed, or is no longer kept.
        return again

    async def _candidate_partitions(self, settings: QueueSettings, number: int) -> AsyncIterator[Partition]:
        """The partition of a job first, then all others from the oldest on, so that a moving job is found."""
        yield self._store.partition(settings, number)
        for partition in await self._store.partitions(settings):
            yield partition

    async def _home(self, dependent: Dependent) -> int:
        return (await self._queue(dependent.queue))[1].current.home_of(dependent.together, dependent.id)

    async def _queue(self, name: str) -> tuple[QueueSettings, Layout]:
        known = self._known.get(name)
        if known is None or time.monotonic() > known[2]:
            settings = await self._store.settings(name)
            return self._keep(settings, await self._store.layout(settings))
        return known[:2]

    def _keep(self, settings: QueueSettings, layout: Layout) -> tuple[QueueSettings, Layout]:
        self._known[settings.name] = settings, layout, time.monotonic() + FLOW_SETTINGS_TTL_SECONDS
        return settings, layout


def _arguments(seeds: Sequence[FlowJobSeed], taken: set[str]) -> list[str | bytes | int]:
    flat: list[str | bytes | int] = []
    for seed in seeds:
        given = 2 if seed.id in taken else int(seed.given)
        flat += (seed.id, seed.when, seed.record, given, seed.mode, len(seed.awaits))
        letters = seed.letters or WAITING_LETTER * len(seed.awaits)
        flat += (
            letter.encode() + encode(dependency)
            for letter, dependency in zip(letters, seed.awaits, strict=True)
        )
    return flat
