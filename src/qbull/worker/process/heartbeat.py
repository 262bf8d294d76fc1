"""Heartbeats: tell the server that workers are alive, and notice those that are not.

Liveness belongs to the process, not to its event loop, so that a job which blocks the loop is not run twice.
The supervisor of `qbull worker` sends heartbeats on behalf of its worker processes; a worker inside another
program sends its own from a thread. The answer to a heartbeat names the workers that have fallen silent, and
these are reclaimed. The next heartbeat waits neither for a reclaim nor for a lost reply. Otherwise the sender
would be taken for dead itself.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from qbull.config import QueueSettings
from qbull.errors import ServerAway, ServerError
from qbull.store.store import Store
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.outage import Outage
from qbull.worker.polling import poll_pause
from qbull.worker.process.reclaimer import Reclaimer
from qbull.worker.process.usage import UsageMeter

RECLAIM_SWEEP_SECONDS = 60.0
MAX_SWEEP_PAUSE_SECONDS = 300.0
FULL_SWEEP_SECONDS = 600.0
"""How often a process looks at all partitions. Otherwise it looks at those that its workers read."""
MIN_HEARTBEAT_TIMEOUT_SECONDS = 0.5
"""The shortest time in which a server has to answer a heartbeat: a busy machine may be slow."""


class Heartbeat:
    """Sends heartbeats for some workers, and reclaims the deliveries of silent ones.

    Args:
        store: The server.
        queues: The queues that are reclaimed.
        workers: Returns the ids of the workers to send heartbeats for.
        min_idle: Seconds without a heartbeat after which a worker is dead.
        outage: Logs when the server is unavailable.
        meter: Measures the processes of the workers.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[QueueSettings],
        workers: Callable[[], Sequence[str]],
        min_idle: float,
        outage: Outage,
        meter: UsageMeter | None = None,
    ) -> None:
        self._store = store
        self._meter = meter
        self._workers = workers
        self._min_idle = min_idle
        self._outage = outage
        self._first_sent_at = self._answered_at = 0.0
        self._next_sweep_at = self._next_full_sweep_at = 0.0
        self._soon = asyncio.Event()
        self._due = asyncio.Event()
        """Set if a worker has fallen silent, or if it is time to sweep."""
        self.reclaimer = Reclaimer(store, queues, min_idle)

    def soon(self) -> None:
        """Send the next heartbeat at once: there is a new worker."""
        self._soon.set()

    async def run(self) -> None:
        """Send heartbeats and reclaim, side by side."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_forever())
            group.create_task(self._reclaim_forever())

    async def send(self) -> list[str]:
        """Send one heartbeat, and return the workers that are silent.

        A late answer counts as a failure: another connection may be faster.
        """
        try:
            async with asyncio.timeout(max(self._min_idle / 5, MIN_HEARTBEAT_TIMEOUT_SECONDS)):
                usage = self._meter.measure() if self._meter is not None else None
                silent = await self._store.heartbeat(self._min_idle, self._workers(), usage)
        except TimeoutError:
            raise ServerAway(f"{self._store.server.address.shown}: cannot be reached: no answer") from None
        self._answered_at = time.monotonic()
        self._first_sent_at = self._first_sent_at or self._answered_at
        return silent

    def is_answered(self) -> bool:
        """Whether the server has answered a heartbeat lately."""
        return bool(self._first_sent_at) and time.monotonic() - self._answered_at < self._min_idle

    async def reclaim_dead_workers(self) -> None:
        """Reclaim the deliveries of silent workers, and sweep now and then."""
        if time.monotonic() - self._first_sent_at < self._min_idle / 6:
            # After an outage of the server all workers look silent; the others need time for their
            # heartbeats.
            return
        failure: ServerError | None = None
        silent = await self.send()
        # Others are reclaiming the same workers: each starts with another one.
        random.shuffle(silent)
        for worker in silent:
            if worker not in await self.send():
                # It has sent a heartbeat while others were reclaimed.
                continue
            try:
                await self.reclaimer.reclaim_silent(worker)
            except ServerError as error:
                failure = error
        if failure is not None:
            raise failure
        if self._is_time_to_sweep():
            now = time.monotonic()
            # Set before the sweep, so that one that fails is not repeated at once.
            self._next_sweep_at = now + self._sweep_pause(0)
            self._next_sweep_at = now + await self.sweep()

    async def sweep(self) -> float:
        """Reclaim deliveries of unknown workers, and return the seconds until the next sweep."""
        now, own = time.monotonic(), set(self._workers())
        read = await self.reclaimer.partitions_read_by(own)
        if now < self._next_full_sweep_at:
            await self.reclaimer.sweep(own, read)
        else:
            await self.reclaimer.sweep(own)
            self._next_full_sweep_at = now + FULL_SWEEP_SECONDS
        return self._sweep_pause(sum(map(len, read.values())))

    def _sweep_pause(self, partitions: int) -> float:
        seconds = poll_pause(RECLAIM_SWEEP_SECONDS, partitions, up_to=16)
        return max(min(seconds, MAX_SWEEP_PAUSE_SECONDS), self._min_idle)

    async def _send_forever(self) -> None:
        while True:
            self._soon.clear()
            silent = await self._outage.retry_until_up(self.send, longest=self._min_idle / 5)
            if silent or self._is_time_to_sweep():
                self._due.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._min_idle / 5):
                    await self._soon.wait()

    async def _reclaim_forever(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            await self._outage.retry_until_up(self.reclaim_dead_workers)

    def _is_time_to_sweep(self) -> bool:
        return time.monotonic() >= self._next_sweep_at


class HeartbeatThread:
    """Sends heartbeats from a thread with its own event loop and connection.

    Args:
        make: Opens the connection, and returns it with the heartbeat to run.
    """

    def __init__(self, make: Callable[[], tuple[Store, Heartbeat]]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main()), name="qbull-heartbeat", daemon=True
        )

    async def start(self) -> None:
        """Start the thread. Returns after the first heartbeat, and raises its error if it failed."""
        self._thread.start()
        await asyncio.to_thread(self._ready.wait)
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Stop the thread and wait for its end. Does nothing if it was never started."""
        if self._thread.ident is None:
            return
        await asyncio.to_thread(self._ready.wait)
        if self._loop is not None and self._stop is not None:
            # If the heartbeat has failed, its loop is closed already.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        store, heartbeat = self._make()
        try:
            await heartbeat.send()
            self._ready.set()
            running = start_actor(heartbeat.run)
            await self._stop.wait()
            await stop_actors([running])
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()
            await store.close()
