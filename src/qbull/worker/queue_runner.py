"""The queue runner: everything that serves one queue in a worker, from the stream to the slots and back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from qbull.core.rate import Rate
from qbull.core.schedule import version_of
from qbull.errors import ServerError
from qbull.store.delivery import Delivery
from qbull.store.verbs.live_settings import LiveSettings
from qbull.store.verbs.workers import ServedQueue, settings_digest
from qbull.worker.actor import BackgroundTasks, start_actor, stop_actors
from qbull.worker.assignment import Assignment
from qbull.worker.attempt import AttemptRunner
from qbull.worker.brake import Brake
from qbull.worker.cancel import Canceller
from qbull.worker.failure_counts import FailureCounter
from qbull.worker.fetch import CLOSED_READ_GRACE_SECONDS, Fetcher
from qbull.worker.flow_dispatcher import FlowDispatcher
from qbull.worker.grace_period import GracePeriod
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.histograms import HistogramWriter
from qbull.worker.lease import PartitionLeases
from qbull.worker.limited_starter import LimitedStarter
from qbull.worker.limiter import Limiter
from qbull.worker.live_settings import LiveSettingsFollower
from qbull.worker.outcome import OutcomeRecorder
from qbull.worker.polling import poll_pause
from qbull.worker.prefetch import PrefetchBuffer
from qbull.worker.progress import ProgressWriter
from qbull.worker.promote import PROMOTE_POLL_SECONDS, Promoter
from qbull.worker.repartition import PartitionMover
from qbull.worker.schedule_runs import RunNoteWriter
from qbull.worker.slot import Slot
from qbull.worker.slots import SlotRunner
from qbull.worker.start_reports import StartReporter
from qbull.worker.suspect_taker import SuspectTaker
from qbull.worker.tick import ScheduleRunner
from qbull.worker.unpark import Unparker
from qbull.worker.wiring import WorkerWiring

log = logging.getLogger("qbull.worker")

UNSTARTED_RELEASE_SECONDS = 0.25
"""Seconds after which a delivery that no slot has taken is released."""
PRIORITY_POLL_SECONDS = 30.0
"""Seconds between two looks for new priority levels in a partition without a wake-up."""


class QueueRunner:
    """Serves one queue.

    Args:
        wiring: The services that all queue runners of the worker share.
        assignment: The queue and its tasks.
        first_slot: The number of the queue's first slot among all slots of the worker.
    """

    def __init__(self, wiring: WorkerWiring, assignment: Assignment, first_slot: int = 0) -> None:
        self.settings = settings = assignment.settings
        store, outage, worker = wiring.store, wiring.outage, wiring.worker
        self._wiring = wiring
        self._outage = outage
        self._assignment = assignment
        self._settings_digest = settings_digest(settings)
        self._background = BackgroundTasks()
        self._brake = Brake()
        self._buffer = PrefetchBuffer()
        self._limiter = Limiter(store, settings, worker, self._buffer, outage)
        self._deliveries = HeldDeliveries(wiring, assignment, self._buffer, self._limiter, self._background)
        self._live_settings = LiveSettingsFollower(
            wiring, settings, self._brake, self._background, self._apply_settings
        )
        self._progress = ProgressWriter(outage, assignment)
        self.histograms = HistogramWriter(store, settings.name, outage)
        self._failures = FailureCounter(store, settings.name, outage) if settings.alert is not None else None
        counters = self.histograms.histograms, self._failures
        outcomes = OutcomeRecorder(assignment, worker, self._deliveries, self._live_settings, *counters)
        self._run_notes = RunNoteWriter(outcomes.ended_runs, outage)
        self._attempts = AttemptRunner(
            wiring, assignment, self._deliveries, self._limiter, self._progress, outcomes
        )
        self._slots = SlotRunner(wiring, settings, first_slot, self._deliveries, self._attempts, self._brake)
        self.time_left, self.start_no_more = self._slots.time_left, self._brake.stop
        self._fetcher = Fetcher(wiring, self._buffer, self._slots, self._limiter)
        self._reading = asyncio.Lock()
        parts = self._deliveries, self._limiter, self._slots, (self._reading, self._partitions_read)
        self._unparker = Unparker(wiring, self._attempts.parked, *parts)
        self._limited_starter = LimitedStarter(wiring, self._attempts.limited, *parts)
        self._mover = PartitionMover(store, settings, outage, assignment.durability)
        self._flow_dispatcher = FlowDispatcher(store, worker, assignment.durability, outage)
        self._leases = PartitionLeases(wiring, settings, self._mover, self._serve)
        self._quarantine = wiring.link.quarantine if wiring.link is not None else None
        # The quarantine process reads no partition.
        self._leases.leaving = self._quarantine is not None
        self._canceller = Canceller(self._buffer, self._attempts, outage)
        self._base = store.names.queue(settings.name)
        self._handlers = self._wake_up_handlers()
        self._share: list[int] = []
        self._limits: tuple[Rate | None, int | None] = (None, None)
        self._reads_nothing = False
        self._new_level = asyncio.Event()
        self._version = version_of(assignment.schedules)
        self._promoters: dict[int, tuple[Promoter, asyncio.Task[None]]] = {}
        self._cancelling: list[asyncio.Task[None]] = []
        self._actors: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start to run jobs.

        If the server is unavailable or refuses a call meanwhile, this waits: jobs may run here already, and
        their outcomes would be lost.
        """
        self._progress.open()
        self._slots.start()
        await self._outage.retry_until_up(self._live_settings.read)
        await self._outage.retry_until_up(self._leases.tick)
        self._cancelling = [start_actor(self._canceller.run)]
        duties = [
            self._live_settings.run,
            self._leases.run,
            self._mover.run,
            self._flow_dispatcher.run,
            self._look_for_priority_levels,
            self._release_unstarted,
            self._start_deferred,
            self.histograms.run,
            self._run_notes.run,
            self._unparker.run,
            self._limited_starter.run,
        ]
        if self._quarantine is not None:
            taker = SuspectTaker(
                self._wiring, self._deliveries, self._limiter, self._slots, self._fetcher, self._quarantine
            )
            self._quarantine.serve(self.settings.name, taker)
            duties.append(taker.run)
        if self.settings.track:
            duties.append(StartReporter(self._attempts, self._wiring.worker, self._outage).run)
        if self._failures is not None:
            duties.append(self._failures.run)
        self._actors = [start_actor(duty) for duty in duties]

    async def stop(self, grace_period: GracePeriod) -> None:
        """Fetch nothing more, let running jobs end, and release the rest."""
        await stop_actors([*self._actors, *self._background.tasks, *dict(self._promoters.values()).values()])
        self._promoters.clear()
        await self._fetcher.stop()
        await self._release(self._buffer.take_all())
        leaving = asyncio.create_task(self._leave())
        await self._slots.stop(grace_period)
        await stop_actors(self._cancelling)
        await self._progress.close()
        await self.flush()
        if self._failures is not None:
            await self._failures.close()
        await leaving
        await self._background.stop()
        await self._release_all()
        await asyncio.gather(self.histograms.close(), self._run_notes.close())
        with suppress(ServerError):
            await self._limiter.leave()

    @property
    def abandoned(self) -> int:
        """The number of functions that run on after `stop()`, until the process ends."""
        return max(self._buffer.abandoned, self.hung)

    @property
    def hung(self) -> int:
        """The number of plain functions that run on after their timeouts."""
        return len(self._attempts.hung)

    async def flush(self) -> None:
        """Wait until all outcomes are written."""
        await self._deliveries.flush()

    def serving(self) -> ServedQueue:
        """The entry of this queue in the worker registry."""
        sharing, leases, code = self._wiring.sharing, self._leases, self._attempts.parked.code
        return ServedQueue(
            self._live_settings.live.settings.concurrency,
            leases.held,
            sharing.mode,
            0 if leases.leaving else sharing.most,
            *sharing.instance_numbers,
            sharing.take_over,
            since=leases.since,
            settings=self._settings_digest,
            leaving=leases.leaving,
            schedules=self._version,
            tasks=sorted(code),
            signatures=[code[name] for name in sorted(code)],
            demands=self._assignment.demands,
        )

    @property
    def shared_partitions(self) -> list[int]:
        """The partitions that it reads and others could read instead: none unless they are shared evenly."""
        return list(self._share) if self._wiring.sharing.mode == "auto" else []

    @property
    def buffer(self) -> PrefetchBuffer:
        """The deliveries of the queue that this worker holds."""
        return self._buffer

    @property
    def slots(self) -> list[Slot]:
        """The slots that run its jobs."""
        return self._attempts.slots

    @property
    def paused(self) -> bool:
        """Whether the queue is paused: it starts nothing until somebody resumes it."""
        return self._live_settings.live.paused

    def on_wake_up(self, base: str, word: str) -> None:
        """Pass a wake-up on to the parts that it concerns.

        Args:
            base: The queue or the partition in question, by the prefix of its Redis names; empty for all.
            word: The kind of event. Empty after a new subscription: anything may have happened before it.
        """
        if word:
            handler = self._handlers.get(word)
            if handler is not None:
                handler(base)
            return
        for name in ("settings", "workers", "move", "flow", "cancel", "due", "bands"):
            self._handlers[name](base)
        self._unparker.wake_up()

    def _wake_up_handlers(self) -> dict[str, Callable[[str], None]]:
        """The handlers of `on_wake_up`, by word."""

        def of_queue(wake_up: Callable[[], None]) -> Callable[[str], None]:
            return lambda base: wake_up() if base in (self._base, "") else None

        return {
            "settings": of_queue(self._live_settings.wake_up),
            "room": of_queue(self._limiter.wake_up),
            f"room {self._wiring.worker}": of_queue(self._limiter.wake_up),
            "layout": of_queue(self._leases.wake_up),
            "workers": lambda base: self._leases.wake_up(),
            "move": self._mover.on_wake_up,
            "flow": self._flow_dispatcher.on_wake_up,
            "cancel": self._on_cancel,
            "stack": self._attempts.stacks.on_wake_up,
            "due": self._on_due,
            "tick": self._on_due,
            "bands": self._on_new_level,
            **dict.fromkeys(
                (f"task {name}" for name in self._assignment.runnable), lambda base: self._unparker.wake_up()
            ),
        }

    def _on_cancel(self, base: str) -> None:
        if not base or any(base == partition.base for partition in self._deliveries.partitions.values()):
            self._canceller.wake_up()

    def _on_due(self, base: str) -> None:
        for number, (promoter, _) in self._promoters.items():
            if base in (self._deliveries.partition(number).base, ""):
                promoter.wake_up()

    def _partitions_read(self) -> list[int] | None:
        """The partitions that this worker reads; None while it reads nothing."""
        return None if self._reads_nothing or self._leases.leaving else self._share

    def _on_new_level(self, base: str) -> None:
        if not base or any(base == self._deliveries.partition(number).base for number in self._share):
            self._new_level.set()

    async def _serve(self, numbers: list[int]) -> None:
        """Read these partitions from now on."""
        self._share = numbers
        self._flow_dispatcher.follow([self._deliveries.partition(number) for number in numbers])
        await self._read()
        await self._wiring.register()
        self._look_for_parked_jobs()

    def _look_for_parked_jobs(self) -> None:
        self._unparker.wake_up()
        self._limited_starter.wake_up()

    async def _apply_settings(self, live: LiveSettings) -> None:
        """Apply changed live settings."""
        before, now = self._live_settings.live, live.settings
        limits = (now.rate, now.max_active)
        if limits != self._limits:
            # A delivery that was fetched under other limits must not start under these.
            self._limits = limits
            self._brake.hold()
            self._reads_nothing = True
            await self._read()
            await self._limiter.leave()
            self._limiter.apply_settings(now)
        was_still, self._reads_nothing = self._reads_nothing, live.still
        self._slots.apply_settings(live)
        if was_still or live.still:
            await self._read()
            self._look_for_parked_jobs()
        if now.concurrency != before.settings.concurrency:
            self._background.start(self._wiring.register())

    async def _read(self) -> None:
        """Read the share of this worker, or nothing if the queue is paused.

        Deliveries of other partitions that have not started are released. Running jobs go on.
        """
        async with self._reading:
            numbers = [] if self._reads_nothing else self._share
            gone = self._promoters.keys() - set(numbers)
            await self._fetcher.serve([self._deliveries.partition(number) for number in numbers])
            await self._release(self._buffer.take_all(None if self._reads_nothing else gone))
            await self._release_unknown_deliveries(gone)
            if gone:
                self._background.start(self._release_late_unknown_deliveries(gone))
            await stop_actors([self._promoters.pop(number)[1] for number in gone])
            safety = poll_pause(PROMOTE_POLL_SECONDS, len(numbers), up_to=4)
            for number in numbers:
                if number not in self._promoters:
                    promoter = self._make_promoter(number, safety)
                    self._promoters[number] = promoter, start_actor(promoter.run)

    def _make_promoter(self, number: int, safety: float) -> Promoter:
        partition, given = self._deliveries.partition(number), self._assignment
        schedules = ScheduleRunner(self._wiring.store, partition, given.tasks, self._outage, given.codecs)
        return Promoter(partition, self._outage, safety, schedules)

    async def _leave(self) -> None:
        """Let others take over the partitions at once, however long the running jobs take to end."""
        read = self._leases.held
        with suppress(ServerError):
            await self._leases.give_up()
            await self._wiring.register()
            await self._release_unknown_deliveries(read)
            self._background.start(self._release_late_unknown_deliveries(read))

    async def _look_for_priority_levels(self) -> None:
        """Read new ready streams: jobs with a new priority open one in their partition."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(poll_pause(PRIORITY_POLL_SECONDS, len(self._share), up_to=16)):
                    await self._new_level.wait()
            self._new_level.clear()
            await self._outage.retry_until_up(self._read)

    async def _release_unstarted(self) -> None:
        """Release prefetched deliveries while all slots are busy: another worker may have a free slot."""
        while True:
            await asyncio.sleep(UNSTARTED_RELEASE_SECONDS)
            if (
                self._buffer.waiting
                and time.monotonic() - self._buffer.last_taken_at >= UNSTARTED_RELEASE_SECONDS
            ):
                await self._release(self._buffer.take_all())

    async def _start_deferred(self) -> None:
        """Start deliveries that waited for an earlier run of the same job."""
        while True:
            await self._buffer.resumed.wait()
            self._buffer.resumed.clear()
            self._slots.arrived()

    async def _release(self, deliveries: Iterable[Delivery]) -> None:
        """Let other workers start these. If the server is unavailable, they start here in their turn."""
        if left := await self._deliveries.release(deliveries):
            self._slots.put_back(left)

    async def _release_unknown_deliveries(self, numbers: Iterable[int]) -> None:
        """Release deliveries of partitions that are no longer read: a closed read may have received them."""
        mine = await self._fetcher.pending_deliveries(
            [self._deliveries.partition(number) for number in numbers]
        )
        await self._release(self._buffer.hold_for_release(mine))

    async def _release_late_unknown_deliveries(self, numbers: Iterable[int]) -> None:
        """The same once more, when the server has certainly noticed that the read is closed."""
        await asyncio.sleep(CLOSED_READ_GRACE_SECONDS)
        with suppress(ServerError):
            await self._release_unknown_deliveries(set(numbers) - self._promoters.keys())

    async def _release_all(self) -> None:
        """Release interrupted jobs, the rest of trains, and the deliveries of the last closed read."""
        try:
            pending = await self._fetcher.pending_deliveries(list(self._deliveries.partitions.values()))
            await self._release([*self._buffer.held(), *pending])
            await self._unparker.release_lost()
        except ServerError as error:
            log.warning('queue "%s": deliveries could not be released: %s', self.settings.name, error)
        left = len(self._buffer) - self._buffer.abandoned
        if left:
            text = 'queue "%s": %d deliveries could not be released; other workers will reclaim them'
            log.warning(text, self.settings.name, left)
