"""Steer: know what is in force for a queue, and let its line follow.

It is the one reader of live settings in a worker. A bell rings at every change; should it be lost, it looks every few
seconds all the same. No job costs a look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from qbull.config import QueueSettings
from qbull.store.store import Store
from qbull.store.verbs import live_settings
from qbull.store.verbs.live_settings import LiveSettings
from qbull.worker.outage import Outage

LIVE_SETTINGS_POLL_SECONDS = 20.0
"""Seconds between two looks where no bell rings."""


class LiveSettingsFollower:
    """For one queue. `follow` is told what is in force at every look."""

    def __init__(
        self,
        store: Store,
        declared: QueueSettings,
        follow: Callable[[LiveSettings], Awaitable[None]],
        outage: Outage,
    ) -> None:
        self._store = store
        self._declared = declared
        self._follow = follow
        self._outage = outage
        self._wake_up = asyncio.Event()
        self.live = LiveSettings(declared)

    def wake_up(self) -> None:
        """Something was changed."""
        self._wake_up.set()

    async def look(self) -> None:
        found = await live_settings.read(self._store, self._declared)
        await self._follow(found)
        self.live = found

    async def run(self) -> None:
        while True:
            wait = (
                min(LIVE_SETTINGS_POLL_SECONDS, self.live.held)
                if self.live.held > 0
                else LIVE_SETTINGS_POLL_SECONDS
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake_up.wait()
            self._wake_up.clear()
            await self._outage.retry_until_up(self.look)
