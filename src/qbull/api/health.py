"""Health: is the server up, are there workers, do jobs wait too long or for a person?

The answer has texts for people and a status for load balancers.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing, Reply
from qbull.api.queues import read_counts
from qbull.core import health
from qbull.core.health import HealthProblem
from qbull.errors import ServerError
from qbull.store.read.partition_report import halted_summary
from qbull.views import queues as views
from qbull.views.shape import view_of

HEALTH_TIMEOUT_SECONDS = 2.0
"""How long a load balancer's request waits for the server."""
UNSERVED_AFTER_SECONDS = 30.0
"""How long a job may wait for the first worker."""


async def queues_health(call: ApiCall[Nothing, Nothing]) -> Reply:
    return await call.context.health.get()


async def healthz(call: ApiCall[Nothing, Nothing]) -> views.AliveView:
    return views.AliveView(status="ok", message="the API answers")


async def readyz(call: ApiCall[Nothing, Nothing]) -> Reply:
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
            await call.context.store.open()
            await call.context.store.server.call("PING")
    except (ServerError, TimeoutError):
        return Reply(views.AliveView(status="away", message="the job server cannot be reached"), 503)
    return Reply(views.AliveView(status="ok", message="the job server answers"))


async def read_health(context: ApiContext) -> Reply:
    """Build the health report."""
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS * 2):
            found = await read_counts(context)
            served = {
                name for who in (await context.store.without_retry.workers()).values() for name in who.queues
            }
            still = await context.halted.get()
    except (ServerError, TimeoutError):
        return _health_reply([health.unavailable()], {})
    return _health_reply([*find_problems(found, served, context.access.stale_after), *still], found)


def find_problems(
    found: dict[str, views.StatsView], served: set[str], stale_after: float
) -> list[HealthProblem]:
    """The problems that the counts of the queues show."""
    wrong = []
    for name, stats in found.items():
        oldest = stats.oldest_waiting_at
        if stats.is_paused:
            if stats.waiting:
                wrong.append(health.paused(name, stats.waiting))
            continue
        if oldest is None:
            continue
        age = (datetime.now(UTC) - oldest).total_seconds()
        if name not in served and age > UNSERVED_AFTER_SECONDS:
            wrong.append(health.unserved(name, stats.waiting))
        elif age > stale_after:
            wrong.append(health.stale(name, age))
    return wrong


async def find_halted_queues(context: ApiContext) -> list[HealthProblem]:
    """The queues with keys that are halted until somebody deals with a dead letter."""
    found = []
    for queue in await context.queues():
        still = await halted_summary(context.store, queue.settings)
        if still is not None:
            found.append(health.halted(queue.name, still.keys, still.waiting))
    return found


def _health_reply(wrong: list[HealthProblem], found: dict[str, views.StatsView]) -> Reply:
    serious = any(ill.serious for ill in wrong)
    answer = views.HealthView(
        status="unhealthy" if serious else "healthy",
        message=health.summarize(wrong),
        problems=[view_of(views.IllView, ill) for ill in wrong],
        details=found,
        timestamp=now(),
    )
    return Reply(answer, 503 if serious else 200)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/health",
        role="open",
        summary="Health of the queues; 503 if unhealthy, with the reasons in the message",
        handler=queues_health,
        answer=views.HealthView,
        answers=(503,),
    ),
    Endpoint(
        method="GET",
        path="/healthz",
        role="open",
        summary="Liveness of the API",
        handler=healthz,
        answer=views.AliveView,
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        role="open",
        summary="Readiness; 503 if the job server is unavailable",
        handler=readyz,
        answer=views.AliveView,
        answers=(503,),
    ),
]
