"""A line: what serves one queue in a worker, from the stream to the slots and back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from qbull.core.codec import PAYLOAD_LIMIT_BYTES
from qbull.core.rate import Rate
from qbull.core.schedule import version_of
from qbull.core.sharing import Sharing
from qbull.errors import ServerError
from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.store.verbs.live_settings import LiveSettings, hold_queue
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.workers import ServedQueue, settings_digest
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.assignment import Assignment
from qbull.worker.attempt import AttemptRunner
from qbull.worker.cancel import Canceller
from qbull.worker.dependencies import DependencyLoader
from qbull.worker.failure_counts import FailureCounter
from qbull.worker.fetch import CLOSED_READ_GRACE_SECONDS, Fetcher
from qbull.worker.flow_dispatcher import FlowDispatcher
from qbull.worker.histograms import HistogramWriter
from qbull.worker.isolation import Isolation
from qbull.worker.lease import PartitionLeases
from qbull.worker.limiter import Limiter
from qbull.worker.live_settings import LiveSettingsFollower
from qbull.worker.outage import Outage
from qbull.worker.prefetch import PrefetchBuffer
from qbull.worker.process.crash_board import CrashBoard
from qbull.worker.progress import ProgressWriter
from qbull.worker.promote import PROMOTE_POLL_SECONDS, Promoter
from qbull.worker.repartition import PartitionMover
from qbull.worker.settle import Settler
from qbull.worker.slots import SlotRunner
from qbull.worker.start_check import StartCheck
from qbull.worker.start_reports import StartReporter
from qbull.worker.tick import ScheduleRunner

log = logging.getLogger("qbull.worker")

UNSTARTED_RELEASE_SECONDS = 0.25
"""Seconds after which a delivery that no slot has begun is given back."""
PRIORITY_POLL_SECONDS = 30.0
"""Seconds between two looks for priorities that are new in a partition, where no bell rings."""


class QueueRunner:
    """`changed` is called when it reads other partitions than before."""

    def __init__(
        self,
        store: Store,
        assignment: Assignment,
        worker: str,
        sharing: Sharing,
        outage: Outage,
        isolation: Isolation,
        changed: Callable[[], Coroutine[Any, Any, None]],
        *,
        min_idle: float,
        board: CrashBoard | None = None,
        first_slot: int = 0,
        payload_limit: int = PAYLOAD_LIMIT_BYTES,
    ) -> None:
        self.settings = settings = assignment.settings
        self._store = store
        self._worker = worker
        self._sharing = sharing
        self._outage = outage
        self._changed = changed
        self._buffer = PrefetchBuffer()
        self._partitions: dict[int, Partition] = {}
        self._settlers: dict[int, Settler] = {}
        self._limiter = Limiter(store, settings, worker, self._buffer, outage)
        self._notes = ProgressWriter(outage)
        self._attempts = AttemptRunner(
            assignment,
            self._settlers,
            self._limiter,
            StartCheck(settings, outage),
            self._notes,
            DependencyLoader(assignment.results, assignment.seals, outage),
            outage,
            worker=worker,
            isolation=isolation,
            board=board,
            payload_limit=payload_limit,
        )
        self._measure = HistogramWriter(store, settings.name, outage)
        self._attempts.count_in(self._measure.figures)
        self._runner = SlotRunner(
            settings,
            self._buffer,
            self._attempts,
            self._settlers,
            outage,
            first_slot=first_slot,
            doubt=min_idle / 2,
        )
        self._fetcher = Fetcher(
            store, worker, self._buffer, self._runner.free_slots, self._runner.arrived, self._limiter, outage
        )
        self._failing = FailureCounter(store, settings.name, outage) if settings.alert is not None else None
        self._mover = PartitionMover(store, settings, outage)
        self._courier = FlowDispatcher(store, worker, assignment.durability, outage)
        self._leases = PartitionLeases(
            store, settings, worker, sharing, self._serve, self._mover.follow, outage
        )
        self._canceller = Canceller(self._buffer, self._attempts.cancel, outage)
        self._cancelling: list[asyncio.Task[None]] = []
        self._steering = LiveSettingsFollower(store, settings, self._follow, outage)
        self._store = store
        self._base = store.names.queue(settings.name)
        self._room = f"room {worker}"
        self._share: list[int] = []
        self._limits: tuple[Rate | None, int | None] = (None, None)
        self._still = False
        self._new_bands = asyncio.Event()
        self._turning = asyncio.Lock()
        self._tasks = assignment.tasks
        self._seals = assignment.seals
        self._version = version_of(assignment.schedules)
        self._promoters: dict[int, tuple[Promoter, asyncio.Task[None]]] = {}
        self._actors: list[asyncio.Task[None]] = []
        self._chores: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Should the server go away or refuse meanwhile, it is waited for: jobs may run here already, and their outcomes would be lost."""
        self._notes.open()
        self._runner.start(self._fetcher.made_room, self._unfinished, self._drop, self._hold)
        await self._outage.retry_until_up(self._steering.look)
        await self._outage.retry_until_up(self._leases.tick)
        self._cancelling = [start_actor(self._canceller.run)]
        duties = (
            self._steering.run,
            self._leases.run,
            self._mover.run,
            self._courier.run,
            self._look_for_bands,
            self._let_others_have_them,
            self._measure.run,
        )
        self._actors = [start_actor(duty) for duty in duties]
        if self.settings.track:
            self._actors.append(
                start_actor(StartReporter(self._attempts.running, self._worker, self._outage).run)
            )
        if self._failing is not None:
            self._attempts.count_failures(self._failing.failed)
            self._actors.append(start_actor(self._failing.run))

    async def stop(self, grace: float) -> None:
        await stop_actors([*self._actors, *self._chores, *(task for _, task in self._promoters.values())])
        self._promoters.clear()
        await self._fetcher.stop()
        await self._give_back(self._buffer.take_all())
        leaving = asyncio.create_task(self._leave())
        await self._runner.stop(grace)
        await stop_actors(self._cancelling)
        await self._notes.close()
        await self.flush()
        if self._failing is not None:
            await self._failing.close()
        await leaving
        await stop_actors(list(self._chores))
        await self._give_back_all()
        await self._measure.close()
        with suppress(ServerError):
            await self._limiter.leave()

    async def flush(self) -> None:
        for settler in list(self._settlers.values()):
            await settler.flush()

    def serving(self) -> ServedQueue:
        """What the roster says of this line."""
        s, leases = self._sharing, self._leases
        return ServedQueue(
            self._steering.live.settings.concurrency,
            leases.held,
            s.mode,
            most=0 if leases.leaving else s.most,
            instance=s.instance if s.mode == "static" else None,
            instances=s.instances if s.mode == "static" else None,
            since=leases.since,
            settings=settings_digest(self.settings),
            leaving=leases.leaving,
            schedules=self._version,
            tasks=sorted(self._tasks),
        )

    @property
    def paused(self) -> bool:
        """Nothing of the queue begins until somebody resumes it."""
        return self._steering.live.paused

    def on_wake_up(self, base: str, word: str) -> None:
        """Something was said about the queue or a partition; about all of them where it names none."""
        if word == "" or (word == "settings" and base == self._base):
            self._steering.wake_up()
        if base == self._base and word in ("room", self._room):
            self._limiter.wake_up()
        if word in ("workers", "") or (word == "layout" and base == self._base):
            self._leases.wake_up()
        if word in ("move", ""):
            self._mover.on_wake_up(base)
        if word in ("flow", ""):
            self._courier.on_wake_up(base)
        if word == "" or (word == "cancel" and any(base == each.base for each in self._partitions.values())):
            self._canceller.wake_up()
        concerned = [number for number in self._promoters if base in (self._partitions[number].base, "")]
        if word in ("due", "tick", ""):
            for number in concerned:
                self._promoters[number][0].wake_up()
        if word == "" or (
            word == "bands" and any(base == self._partition(each).base for each in self._share)
        ):
            self._new_bands.set()

    async def _serve(self, numbers: list[int]) -> None:
        """These partitions are ours from now on."""
        self._share = numbers
        self._courier.follow([self._partition(number) for number in numbers])
        await self._read()
        await self._changed()

    async def _follow(self, live: LiveSettings) -> None:
        """Do as is in force now."""
        before, now = self._steering.live, live.settings
        limits = (now.rate, now.max_active)
        if limits != self._limits:  # what was fetched under others must not be begun under these
            self._limits = limits
            self._runner.hold()
            self._still = True
            await self._read()
            await self._limiter.leave()
            self._limiter.apply_settings(now)
        was_still, self._still = self._still, live.still
        self._runner.follow(live)
        if was_still or live.still:
            await self._read()
        if now.concurrency != before.settings.concurrency:
            self._do(self._changed())

    async def _read(self) -> None:
        """Read what is ours, nothing where the queue is paused. What was not begun of the rest goes back, what runs goes on."""
        async with self._turning:
            numbers = [] if self._still else self._share
            gone = self._promoters.keys() - set(numbers)
            await self._fetcher.serve([self._partition(number) for number in numbers])
            await self._give_back(self._buffer.take_all(None if self._still else gone))
            await self._give_back_strays(gone)
            if gone:
                self._do(self._give_back_late_strays(gone))
            await stop_actors([self._promoters.pop(number)[1] for number in gone])
            safety = PROMOTE_POLL_SECONDS * max(len(numbers) / 4, 1)
            for number in numbers:
                if number not in self._promoters:
                    partition = self._partition(number)
                    ticker = ScheduleRunner(self._store, partition, self._tasks, self._outage, self._seals)
                    promoter = Promoter(partition, self._outage, safety, ticker)
                    self._promoters[number] = promoter, start_actor(promoter.run)

    async def _leave(self) -> None:
        """Others take over at once what this one read, however long its running jobs take to end."""
        read = self._leases.held
        with suppress(ServerError):
            await self._leases.give_up()
            await self._changed()
            await self._give_back_strays(read)
            self._do(self._give_back_late_strays(read))

    def _partition(self, number: int) -> Partition:
        if number not in self._partitions:
            partition = self._partitions[number] = self._store.partition(self.settings, number)
            self._settlers[number] = Settler(partition, self._outage, self._settled)
        return self._partitions[number]

    async def _look_for_bands(self) -> None:
        """A partition may have a ready stream more than when it was taken up."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PRIORITY_POLL_SECONDS * max(len(self._share) / 16, 1)):
                    await self._new_bands.wait()
            self._new_bands.clear()
            await self._outage.retry_until_up(self._read)

    def _do(self, chore: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def _unfinished(self, delivery: Delivery) -> None:
        """The rest of a train is for others. What was done of it must be written down first, or it would be done again."""

        async def give_back() -> None:
            await self._settlers[delivery.partition.number].flush()
            await self._outage.retry_until_up(partial(delivery.partition.release, [delivery.position]))
            self._drop(delivery)

        self._do(give_back())

    def _hold(self, seconds: float, why: str) -> None:
        """A task has asked for a rest of the whole queue: here at once, in the other workers as soon as they are told."""
        self._runner.hold()
        tell = partial(hold_queue, self._store, self.settings.name, seconds, why)

        async def tell_all() -> None:
            await self._outage.retry_until_up(tell)
            self._steering.wake_up()

        self._do(tell_all())

    def _settled(self, delivery: Delivery) -> None:
        self._drop(delivery)
        self._fetcher.made_room()

    def _drop(self, delivery: Delivery) -> None:
        self._buffer.drop(delivery)
        if self._limiter.limited:
            self._limiter.slot_freed()

    async def _let_others_have_them(self) -> None:
        """What was fetched ahead of slots that are now busy for longer goes back: another worker may have a free one."""
        while True:
            await asyncio.sleep(UNSTARTED_RELEASE_SECONDS)
            if (
                self._buffer.waiting
                and time.monotonic() - self._buffer.last_taken_at >= UNSTARTED_RELEASE_SECONDS
            ):
                await self._give_back(self._buffer.take_all())

    async def _give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Others can begin these now. While the server is away they stay, and are begun here when their turn comes."""
        some: dict[int, list[Delivery]] = {}
        for delivery in deliveries:
            some.setdefault(delivery.partition.number, []).append(delivery)
        for number, returned in some.items():
            try:
                await self._partitions[number].release([delivery.position for delivery in returned])
            except ServerError:
                self._buffer.put_back(returned)
                self._runner.arrived()
            else:
                for delivery in returned:
                    self._drop(delivery)

    async def _give_back_strays(self, numbers: Iterable[int]) -> None:
        """What the server has handed over of partitions that are read here no more: it came with the reply to a read
        that was ended."""
        mine = await self._fetcher.pending_deliveries([self._partition(number) for number in numbers])
        await self._give_back(self._buffer.hold_for_release(mine))

    async def _give_back_late_strays(self, numbers: Iterable[int]) -> None:
        """The same once more, when the server has certainly seen that the read has ended."""
        await asyncio.sleep(CLOSED_READ_GRACE_SECONDS)
        with suppress(ServerError):
            await self._give_back_strays(set(numbers) - self._promoters.keys())

    async def _give_back_all(self) -> None:
        """What is left: interrupted jobs, the rest of trains, and what the last, cut-off reply had brought."""
        try:
            await self._give_back(
                [
                    *self._buffer.held(),
                    *await self._fetcher.pending_deliveries(list(self._partitions.values())),
                ]
            )
        except ServerError as error:
            log.warning("%s", error)
        if self._buffer:
            log.warning(
                'queue "%s": what this worker still held is taken over by others in a while',
                self.settings.name,
            )
