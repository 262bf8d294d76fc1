"""Beat: say that workers live, and take back what dead ones held.

Liveness belongs to the process, not to its event loop: for the processes of `qbull worker` their parent beats, and a
worker inside another program beats from a thread. So a job that blocks the loop is not run twice. Whoever beats
is told who has fallen silent, and reclaims. Reclaiming may take long where the server is slow, and a beat may be lost on its way: the next
one waits for neither, or whoever buries the dead would be taken for dead itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from qbull.config import QueueSettings
from qbull.core.record import MAX_CRASHES, Ending, append_ending
from qbull.errors import NotFound, ServerAway, ServerError
from qbull.store.store import Store
from qbull.store.verbs import limits
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.outage import Outage

log = logging.getLogger("qbull.worker")

RECLAIM_SWEEP_SECONDS = 60.0
MIN_HEARTBEAT_TIMEOUT_SECONDS = 0.5
"""Seconds in which a server answers a beat, at least: a busy machine takes its time."""


class Heartbeat:
    """`workers` gives the ids to speak for; one that has said nothing for `min_idle` is dead. A newcomer does not judge at once."""

    def __init__(
        self,
        store: Store,
        queues: Sequence[QueueSettings],
        workers: Callable[[], Sequence[str]],
        min_idle: float,
        outage: Outage,
    ) -> None:
        self._store = store
        self._queues = queues
        self._workers = workers
        self._min_idle = min_idle
        self._outage = outage
        self._came = 0.0
        self._swept = -RECLAIM_SWEEP_SECONDS
        self._soon = asyncio.Event()
        self._due = asyncio.Event()
        """Somebody has fallen silent, or it is time to sweep."""

    def soon(self) -> None:
        """There is a new worker to speak for."""
        self._soon.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(self._undertake())

    async def say(self) -> list[str]:
        """The workers live; answers with those that do not. No answer soon is none: another connection may have one."""
        try:
            async with asyncio.timeout(max(self._min_idle / 5, MIN_HEARTBEAT_TIMEOUT_SECONDS)):
                silent = await self._store.heartbeat(self._min_idle, self._workers())
        except TimeoutError:
            raise ServerAway(f"{self._store.server.address.shown}: cannot be reached: no answer") from None
        self._came = self._came or time.monotonic()
        return silent

    async def _beat(self) -> None:
        while True:
            self._soon.clear()
            silent = await self._outage.retry_until_up(self.say, longest=self._min_idle / 5)
            if silent or self._is_time_to_sweep():
                self._due.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._min_idle / 5):
                    await self._soon.wait()

    async def _undertake(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            await self._outage.retry_until_up(self.bury_the_dead)

    async def bury_the_dead(self) -> None:
        if time.monotonic() - self._came < self._min_idle / 6:
            return  # should the server have been away, this one is only the first to be heard
        trouble: ServerError | None = None
        for worker in await self.say():
            if worker not in await self.say():
                continue  # it was heard again while others were buried
            try:
                await self._bury(worker)
            except ServerError as error:
                trouble = error
        if trouble is not None:
            raise trouble
        if self._is_time_to_sweep():
            self._swept = time.monotonic()
            await self._sweep(set(self._workers()))

    async def _bury(self, worker: str) -> None:
        log.warning("worker %s has fallen silent; its deliveries are taken back", worker)
        taken = await self.reclaim(worker) + await self._reclaim_elsewhere(worker)
        await self._store.forget_worker(worker, lost=True)
        log.info("worker %s: %d deliveries were taken back", worker, taken)

    def _is_time_to_sweep(self) -> bool:
        return time.monotonic() - self._swept >= max(RECLAIM_SWEEP_SECONDS, self._min_idle)

    async def reclaim(self, worker: str, running: Sequence[tuple[str, int, bytes]] | None = None) -> int:
        """Take back all that a dead worker held; `running` is what it was doing, where somebody saw it.

        Of a cluster one node may be away: what the others have does not wait for it. It is raised at the end.
        """
        taken = 0
        trouble: ServerError | None = None
        for settings in self._queues:
            try:
                taken += await self._take_back(worker, settings, running)
            except ServerError as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return taken

    async def _reclaim_elsewhere(self, worker: str) -> int:
        """The same in queues that the silent worker served and this one does not: whoever buries it is the only one to know."""
        taken = 0
        own = {settings.name for settings in self._queues}
        for name in sorted((await self._store.worker(worker)).queues.keys() - own):
            try:
                taken += await self._take_back(worker, await self._store.settings(name))
            except ServerAway:
                raise
            except (NotFound, ServerError):  # no rights for that queue: those who serve it sweep
                continue
        return taken

    async def _take_back(
        self, worker: str, settings: QueueSettings, running: Sequence[tuple[str, int, bytes]] | None = None
    ) -> int:
        taken = 0
        trouble: ServerError | None = None
        for partition in await self._store.partitions(settings):
            started = None if running is None else [place for queue, number, place in running if (queue, number) == (settings.name, partition.number)]  # fmt: skip
            more = True
            while more:
                try:
                    answer = await partition.reclaim(
                        worker, _crash_ending(worker), started, self._min_idle / 2
                    )
                except ServerError as error:
                    trouble = error
                    break
                taken += answer.deliveries
                more = answer.more
                if answer.dead:
                    log.error(
                        'queue "%s": %d jobs failed for good: %s', settings.name, answer.dead, CRASHED_ERROR
                    )
        if trouble is not None:
            raise trouble
        await limits.free_slots(self._store, settings.name, [worker])
        return taken

    async def _sweep(self, own: set[str]) -> None:
        """Look for deliveries of workers that nobody remembers: the list of the living may have been lost."""
        known = own | await self._store.remembered_workers()
        for settings in self._queues:
            gone = [
                user for user in await limits.slot_holders(self._store, settings.name) if user not in known
            ]
            await limits.free_slots(self._store, settings.name, gone)
            streams = await self._store.streams(await self._store.partitions(settings))
            for stream in streams.values():
                for worker, idle_ms in (await self._store.consumers(stream)).items():
                    if worker not in known and idle_ms > self._min_idle * 1000:
                        taken = await self.reclaim(worker)
                        if taken:
                            log.warning(
                                "worker %s is not known any more; %d of its deliveries were taken back",
                                worker,
                                taken,
                            )


CRASHED_ERROR = f"its worker died {MAX_CRASHES} times while it ran"


def _crash_ending(worker: str) -> bytes:
    return append_ending(Ending(attempt=1, duration_ms=0.0, worker=worker, error=CRASHED_ERROR))


class HeartbeatThread:
    """A beat with a thread, an event loop and a connection of its own."""

    def __init__(self, make: Callable[[], tuple[Store, Heartbeat]]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main()), name="qbull-beat", daemon=True
        )

    async def start(self) -> None:
        """Returns when the first beat was heard."""
        self._thread.start()
        await asyncio.to_thread(self._ready.wait)
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        if self._thread.ident is None:
            return  # it was never started
        await asyncio.to_thread(self._ready.wait)
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # it has failed, and its loop is closed
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        store, beat = self._make()
        try:
            await beat.say()
            self._ready.set()
            running = start_actor(beat.run)
            await self._stop.wait()
            await stop_actors([running])
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()
            await store.close()
