"""Health: the problems of the queues and workers, and a status for load balancers.

core/health.py finds the problems. They are read at most once in two seconds, however many ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from qbull.api.auth import ANONYMOUS, Caller
from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing, Reply
from qbull.api.problems import ApiProblem
from qbull.core.health import HealthLimits, find_problems
from qbull.core.health_problem import HealthProblem, status_of, summarize, unavailable
from qbull.errors import QbullError, ServerError
from qbull.store.read import health as health_facts
from qbull.store.read.inspect import Counts
from qbull.views import health as views
from qbull.views.queues import StatsView

HEALTH_TIMEOUT_SECONDS = 2.0
"""How long a load balancer's request waits for the server."""


@dataclass(frozen=True)
class HealthReport:
    """The problems, the counts of each queue, and how many jobs each worker has, by queue and worker."""

    problems: tuple[HealthProblem, ...]
    counts: Mapping[str, Counts] = field(default_factory=dict)
    busy: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


async def queues_health(call: ApiCall[Nothing, Nothing]) -> Reply:
    report = await call.context.health.get()
    caller = await _known_caller(call)
    status = status_of(report.problems)
    answer = views.HealthView(
        status=status,
        message=summarize(report.problems),
        problems=[
            views.HealthProblemView.of(one, anonymous=not _may_see_names(caller, one))
            for one in report.problems
        ],
        details={name: StatsView.of(name, counts) for name, counts in report.counts.items()},
        timestamp=now(),
    )
    return Reply(answer, 503 if status == "unhealthy" else 200)


async def _known_caller(call: ApiCall[Nothing, Nothing]) -> Caller:
    """The caller, if the request has valid credentials; anybody may ask without."""
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
            return await call.context.auth.caller(call.request)
    except (ApiProblem, QbullError, TimeoutError):
        return ANONYMOUS


def _may_see_names(caller: Caller, problem: HealthProblem) -> bool:
    """Whether a caller may see the names of workers and people in a problem."""
    if caller.role == "open":
        return False
    return not caller.queues or (problem.queue is not None and caller.may_use(problem.queue))


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


async def read_report(context: ApiContext) -> HealthReport:
    """Read the facts and find the problems."""
    limits = HealthLimits(stale_after=context.access.stale_after)
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS * 2):
            names = set(await context.store.queues())
            queues = [queue.settings for queue in await context.queues()]
            unreadable = names - {queue.name for queue in queues}
            reading = await health_facts.read_health(
                context.store.without_retry, queues, limits, unreadable=unreadable
            )
    except (ServerError, TimeoutError):
        context.away_since_ms = context.away_since_ms or int(time.time() * 1000)
        return HealthReport((unavailable(context.away_since_ms),))
    context.away_since_ms = None
    return HealthReport(
        find_problems(reading.facts, limits),
        reading.counts,
        {queue.name: queue.held_jobs() for queue in reading.facts.queues},
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/health",
        role="open",
        scope="none",
        summary="Health of the queues; 503 if a problem is critical, with the reasons in the message",
        handler=queues_health,
        answer=views.HealthView,
        answers=(503,),
    ),
    Endpoint(
        method="GET",
        path="/healthz",
        role="open",
        scope="none",
        summary="Liveness of the API",
        handler=healthz,
        answer=views.AliveView,
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        role="open",
        scope="none",
        summary="Readiness; 503 if the job server is unavailable",
        handler=readyz,
        answer=views.AliveView,
        answers=(503,),
    ),
]
