"""Live settings: follow the settings of a queue that can be changed while its workers run.

The follower is the only reader of live settings in a worker. Every change wakes it up. In case a wake-up is
lost, it also polls every few seconds. Jobs themselves never read settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from qbull.config import QueueSettings
from qbull.store.verbs import live_settings
from qbull.store.verbs.live_settings import LiveSettings, hold_queue
from qbull.worker.actor import BackgroundTasks
from qbull.worker.brake import Brake
from qbull.worker.wiring import WorkerWiring

LIVE_SETTINGS_POLL_SECONDS = 20.0
"""Seconds between two reads without a wake-up."""


class LiveSettingsFollower:
    """For one queue. `apply` receives the settings after every read: `QueueRunner._apply_settings`."""

    def __init__(
        self,
        wiring: WorkerWiring,
        declared: QueueSettings,
        brake: Brake,
        background: BackgroundTasks,
        apply: Callable[[LiveSettings], Awaitable[None]],
    ) -> None:
        self._store = wiring.store
        self._outage = wiring.outage
        self._declared = declared
        self._brake = brake
        self._background = background
        self._apply = apply
        self._wake_up = asyncio.Event()
        self.live = LiveSettings(declared)

    def wake_up(self) -> None:
        """The settings have changed."""
        self._wake_up.set()

    def hold(self, seconds: float, reason: str) -> None:
        """Let the whole queue rest, because a task asks for it: here at once, elsewhere after a message."""
        self._brake.hold()
        tell_others = partial(hold_queue, self._store, self._declared.name, seconds, reason)

        async def hold() -> None:
            await self._outage.retry_until_up(tell_others)
            self.wake_up()

        self._background.start(hold())

    async def read(self) -> None:
        """Read the settings and apply them."""
        live = await live_settings.read(self._store, self._declared)
        keep = live.settings.keep if "keep" in live.changed else None
        self._store.retention(self._declared.name).follow(keep)
        await self._apply(live)
        self.live = live

    async def run(self) -> None:
        """Read again after every wake-up, when a hold ends, and every few seconds."""
        while True:
            wait = LIVE_SETTINGS_POLL_SECONDS
            if self.live.held > 0:
                wait = min(wait, self.live.held)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake_up.wait()
            self._wake_up.clear()
            await self._outage.retry_until_up(self.read)
