"""Keep a number of durable workflows running for some seconds; imported by the adapters beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def steps_a_second(
    workflow: Callable[[], Awaitable[object]], steps: int, callers: int, seconds: float
) -> float:
    """Each caller runs one workflow after another; the first of each is not measured.

    Args:
        workflow: runs one workflow to its end.
        steps: number of steps of one workflow.
        callers: number of workflows that run at once.
        seconds: no workflow starts later than this.
    """
    await asyncio.gather(*(workflow() for _ in range(callers)))
    done = 0
    began = time.perf_counter()

    async def call() -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await workflow()
            done += 1

    await asyncio.gather(*(call() for _ in range(callers)))
    return done * steps / (time.perf_counter() - began)
