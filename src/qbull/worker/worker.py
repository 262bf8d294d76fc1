"""The worker: one process's actors, put together, started in order and stopped in order.

For each queue: a fetcher fills a hand, a runner works through it, a settler for each partition writes down what
became of it, a promoter for each partition wakes what is due. For all of them one bell and, where no parent does
it, one beat.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from qbull.config import QueueSettings
from qbull.core.codec import PAYLOAD_LIMIT
from qbull.core.task import TaskSpec
from qbull.errors import ServerError
from qbull.store import inspect
from qbull.store.partition import Partition, Settlement
from qbull.store.store import Store
from qbull.worker.beat import Beat, BeatThread
from qbull.worker.bell import Bell
from qbull.worker.board import Board
from qbull.worker.fetch import Fetcher
from qbull.worker.hand import Hand, place_of
from qbull.worker.isolation import Isolation
from qbull.worker.outage import Outage
from qbull.worker.promote import SAFETY, Promoter
from qbull.worker.run import Runner
from qbull.worker.settle import Settler

log = logging.getLogger("qbull.worker")


STUCK = 0.25
"""Seconds after which a delivery that no slot has begun is given back."""


@dataclass(frozen=True)
class Assignment:
    """A queue that a worker is to serve."""

    settings: QueueSettings
    tasks: Mapping[str, TaskSpec]


def new_worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Worker:
    def __init__(
        self,
        make_store: Callable[[], Store],
        assignments: Sequence[Assignment],
        *,
        min_idle: float = 30.0,
        payload_limit: int = PAYLOAD_LIMIT,
        id: str | None = None,
        board: Board | None = None,
        supervised: bool = False,
    ) -> None:
        self.id = id or new_worker_id()
        self._make_store = make_store
        self._store = make_store()
        self._assignments = assignments
        self._min_idle = min_idle
        self._outage = Outage()
        self._isolation = Isolation()
        self._beat = None if supervised else BeatThread(self._make_beat)
        self._lines: list[_Line] = []
        self._actors: list[asyncio.Task[None]] = []
        self._stopped = False
        slot = 0
        for assignment in assignments:
            self._lines.append(_Line(self, assignment, board, slot, payload_limit))
            slot += assignment.settings.concurrency

    async def start(self) -> None:
        for assignment in self._assignments:
            await self._store.patiently(
                partial(self._store.register, assignment.settings, sorted(assignment.tasks))
            )
        if self._beat is not None:
            await self._beat.start()
        self._actors.append(asyncio.create_task(Bell(self._store, self._outage, self._heard).run()))
        for line in self._lines:
            await line.start()

    async def stop(self, grace: float = 30.0) -> None:
        """Fetch no more, let running jobs end within `grace` seconds, write everything down, give the rest back."""
        if self._stopped:
            return
        self._stopped = True
        await _end(self._actors)
        await asyncio.gather(*(line.stop(grace) for line in self._lines))
        if self._beat is not None:
            await self._beat.stop()
        with suppress(ServerError):
            await self._store.bury(self.id, certain=True)
        await self._store.close()

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def drain(self) -> None:
        """Run until the queues are empty, delayed jobs and retries included. Jobs behind a halted lane stay."""
        while True:
            for line in self._lines:
                await line.flush()
            counts = [await inspect.count(partition) for line in self._lines for partition in line.partitions]
            if not any(count.runnable for count in counts):
                return
            await asyncio.sleep(0.02)

    def describe(self) -> dict[str, Any]:
        """What people see of this worker."""
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "queues": {a.settings.name: a.settings.concurrency for a in self._assignments},
        }

    def _make_beat(self) -> tuple[Store, Beat]:
        store = self._make_store()
        queues = [assignment.settings for assignment in self._assignments]
        return store, Beat(store, queues, lambda: {self.id: self.describe()}, self._min_idle, Outage())

    def _heard(self, base: str, word: str) -> None:
        for line in self._lines:
            line.heard(base, word)


class _Line:
    """What serves one queue in a worker."""

    def __init__(
        self, worker: Worker, assignment: Assignment, board: Board | None, first_slot: int, payload_limit: int
    ) -> None:
        settings = assignment.settings
        store, outage = worker._store, worker._outage
        self.partitions = store.partitions(settings)
        self._store = store
        self._hand = Hand()
        self._settlers = [Settler(partition, outage, self._settled) for partition in self.partitions]
        self._runner = Runner(
            settings,
            assignment.tasks,
            self._hand,
            self._settle,
            worker=worker.id,
            isolation=worker._isolation,
            board=board,
            first_slot=first_slot,
            payload_limit=payload_limit,
            doubt=worker._min_idle / 2,
        )
        self._fetcher = Fetcher(
            store, worker.id, self._hand, self._runner.free_slots, self._runner.arrived, outage
        )
        safety = SAFETY * max(len(self.partitions) / 4, 1)
        self._promoters = {
            partition.base: Promoter(partition, outage, safety) for partition in self.partitions
        }
        self._promoting: list[asyncio.Task[None]] = []
        self._chores: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._runner.start(self._fetcher.made_room)
        await self._fetcher.serve(self.partitions)
        self._promoting = [asyncio.create_task(promoter.run()) for promoter in self._promoters.values()]
        self._promoting.append(asyncio.create_task(self._let_others_have_them()))

    async def stop(self, grace: float) -> None:
        await _end([*self._promoting, *self._chores])
        await self._fetcher.stop()
        await self._give_back_unbegun()
        await self._runner.stop(grace)
        await self.flush()
        await self._give_back_all()

    async def flush(self) -> None:
        for settler in self._settlers:
            await settler.flush()

    def heard(self, base: str, word: str) -> None:
        """Something was said about a partition; about all of them where it names none."""
        concerned = [promoter for known, promoter in self._promoters.items() if base in (known, "")]
        if word in ("due", ""):
            for promoter in concerned:
                promoter.ring()
        if concerned and word in ("bands", ""):
            chore = asyncio.create_task(self._refresh())
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)

    async def _refresh(self) -> None:
        with suppress(ServerError):
            await self._fetcher.refresh()

    def _settle(self, partition: Partition, settlement: Settlement) -> bool:
        settler = self._settlers[partition.number]
        settler.add(settlement)
        return settler.leaves(settlement)

    def _settled(self, partition: Partition, place: bytes) -> None:
        self._hand.drop(partition, place)
        self._fetcher.made_room()

    async def _let_others_have_them(self) -> None:
        """What was fetched ahead of slots that are now busy for longer goes back: another worker may have a free one."""
        while True:
            await asyncio.sleep(STUCK)
            if self._hand.waiting and time.monotonic() - self._hand.taken >= STUCK:
                await self._give_back_unbegun()

    async def _give_back_unbegun(self) -> None:
        """Others can begin these now."""
        unbegun = self._hand.take_all()
        with suppress(ServerError):
            for partition in self.partitions:
                places = [place_of(delivery) for delivery in unbegun if delivery.partition is partition]
                if places:
                    await partition.release(places)
                    for place in places:
                        self._hand.drop(partition, place)

    async def _give_back_all(self) -> None:
        """What is left: interrupted jobs, the rest of trains, and what the last, cut-off reply had brought."""
        try:
            left = {
                (d.partition.number, place_of(d)): d.partition
                for d in (*self._hand.held(), *await self._fetcher.in_my_name())
            }
            for (_, place), partition in left.items():
                await partition.release([place])
        except ServerError as error:
            log.warning("%s; what this worker still held is taken over by others in a while", error)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
