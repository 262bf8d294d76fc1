"""An actor: a duty that goes on until it is stopped. What it did not expect is said with its traceback, and it begins anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

log = logging.getLogger("qbull.worker")

ACTOR_RESTART_SECONDS = 1.0


def start_actor(duty: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    return asyncio.create_task(_run_forever(duty))


async def stop_actors(actors: Sequence[asyncio.Task[None]]) -> None:
    """Stop them, and wait until they have stopped."""
    for actor in actors:
        actor.cancel()
    if actors:
        await asyncio.wait(actors)


async def _run_forever(duty: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await duty()
        except Exception:
            log.exception(
                "%s met what it did not expect; it begins anew", getattr(duty, "__qualname__", duty)
            )
        await asyncio.sleep(ACTOR_RESTART_SECONDS)
