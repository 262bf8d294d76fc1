"""Actors: duties that run until they are stopped.

One that fails unexpectedly logs its traceback and starts again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

log = logging.getLogger("qbull.worker")

ACTOR_RESTART_SECONDS = 1.0


def start_actor(duty: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """Run a duty until it is stopped with `stop_actors`."""
    return asyncio.create_task(_run_forever(duty))


async def stop_actors(actors: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel them, and wait until they have ended."""
    for actor in actors:
        actor.cancel()
    if actors:
        await asyncio.wait(actors)


async def all_of(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Wait for all of these, which run side by side. If one fails, the others are cancelled."""
    works = list(works)
    if len(works) == 1:
        await works[0]
        return
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def first_of(*events: asyncio.Task[Any] | Coroutine[Any, Any, object]) -> None:
    """Wait for the first of these. Tasks go on, coroutines are cancelled."""
    waiting = [event if isinstance(event, asyncio.Task) else asyncio.create_task(event) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, event in zip(waiting, events, strict=True):
            if task is not event:
                task.cancel()


class BackgroundTasks:
    """Tasks that end by themselves and that nobody waits for, until the queue runner stops."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it in the background."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def stop(self) -> None:
        """Cancel the ones that still run."""
        await stop_actors(list(self.tasks))


async def _run_forever(duty: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await duty()
        except Exception:
            log.exception(
                "unexpected error in %s; it restarts in %g s",
                getattr(duty, "__qualname__", duty),
                ACTOR_RESTART_SECONDS,
            )
        await asyncio.sleep(ACTOR_RESTART_SECONDS)
