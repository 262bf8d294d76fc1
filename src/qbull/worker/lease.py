"""Leases: which partitions of a queue this worker reads.

A worker may read a partition as long as its heartbeats continue; nothing has to be renewed. If two workers
read the same partition for a moment, lanes keep the order and fences refuse stale outcomes. So a handover
needs no pause: the old reader stops reading, releases its unstarted jobs, and finishes the running ones.

- auto:   an even share of the partitions. Every worker computes it from the same worker registry, and as few
          partitions as possible move.
- leased: partitions that no other worker has, up to a limit, for this worker alone until it stops.
- static: `partition % instances == instance`. With a time for take-over, the partitions of an instance that
          has been gone that long go to the others until it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import assert_never

from qbull.config import QueueSettings
from qbull.core.layout import Generation
from qbull.core.sharing import ShareMember, assign_partitions
from qbull.store.read.inspect import server_time
from qbull.store.verbs.workers import RegisteredWorker
from qbull.worker.config_warnings import ConfigWarningLogger
from qbull.worker.repartition import PartitionMover
from qbull.worker.static_share import StaticShare
from qbull.worker.wiring import WorkerWiring

log = logging.getLogger("qbull.worker")

LEASE_POLL_SECONDS = 20.0
"""Seconds between two checks without a wake-up."""


class PartitionLeases:
    """The leases of one queue.

    `serve` receives the partitions to read whenever they change, `mover` the layout after every check.
    """

    def __init__(
        self,
        wiring: WorkerWiring,
        settings: QueueSettings,
        mover: PartitionMover,
        serve: Callable[[list[int]], Awaitable[None]],
    ) -> None:
        self._store = wiring.store
        self._members = wiring.members
        self._settings = settings
        self._worker = wiring.worker
        self._sharing = sharing = wiring.sharing
        self._static = StaticShare(wiring.worker, settings.name, sharing)
        self._mover = mover
        self._serve = serve
        self._outage = wiring.outage
        self._wake_up = asyncio.Event()
        self._complaints = ConfigWarningLogger(settings, wiring.worker, speaks=sharing.process == 0)
        self.held: list[int] = []
        self.since: dict[int, int] = {}
        self.leaving = False

    def wake_up(self) -> None:
        """Check soon: a worker has started, stopped, or leased a partition."""
        self._wake_up.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LEASE_POLL_SECONDS, self._static.next_take_over())):
                    await self._wake_up.wait()
            self._wake_up.clear()
            await self._outage.retry_until_up(self.tick)

    async def tick(self) -> None:
        """Check which workers and partitions exist, and read the share of this worker."""
        layout = await self._store.layout(self._settings)
        members = await self._members()
        share: list[int] = []
        for generation in layout.busy:
            share += await self._share(generation, members)
        if share != self.held:
            log.debug('queue "%s": reading partitions %s', self._settings.name, share)
            before, since = self.held, self.since
            now = int(await server_time(self._store) * 1000)
            self.held, self.since = share, {number: since.get(number, now) for number in share}
            try:
                await self._serve(share)
            except BaseException:
                self.held, self.since = before, since  # half done; the next check does it again
                raise
            await self._unlease(set(before) - set(share))
        self._mover.follow(layout, self.held)
        self._complaints.look(layout.current, members)

    async def give_up(self) -> None:
        """Leave all partitions to other workers."""
        held, self.held, self.since, self.leaving = self.held, [], {}, True
        await self._unlease(held)

    async def _unlease(self, numbers: Iterable[int]) -> None:
        if self._sharing.mode == "leased":
            for number in numbers:
                await self._store.partition(self._settings, number).unlease(self._worker)

    async def _share(self, generation: Generation, members: dict[str, RegisteredWorker]) -> list[int]:
        """Generations are shared out separately: the new one must not wait until the old one is done."""
        match self._sharing.mode:
            case "static":
                return self._static.share(generation, members)
            case "auto":
                return self._even(generation, members)
            case "leased":
                return await self._take(generation, members)
            case _:
                assert_never(self._sharing.mode)

    def _even(self, generation: Generation, members: dict[str, RegisteredWorker]) -> list[int]:
        readers = {self._worker: ShareMember(generation.indices_of(self.held), self._sharing.most)}
        for name, member in members.items():
            serving = member.queues.get(self._settings.name)
            if (
                name != self._worker
                and serving is not None
                and serving.sharing == "auto"
                and not serving.leaving
                and not member.blocked
            ):
                readers[name] = ShareMember(generation.indices_of(serving.partitions), serving.most)
        share = assign_partitions(generation.partitions, readers)[self._worker]
        return [generation.numbers[index] for index in share]

    async def _take(self, generation: Generation, members: dict[str, RegisteredWorker]) -> list[int]:
        """The partitions that this worker has, and as many free ones as it may take."""
        taken = {
            number
            for name, member in members.items()
            if name != self._worker and (serving := member.queues.get(self._settings.name)) is not None
            for number in serving.partitions
        }
        held = [number for number in self.held if number in generation.numbers]
        most = generation.partitions if self._sharing.most is None else self._sharing.most
        for number in generation.numbers:
            if len(held) >= most:
                break
            if (
                number not in held
                and number not in taken
                and await self._store.partition(self._settings, number).lease(self._worker, list(members))
            ):
                held.append(number)
        return sorted(held)
