"""Health: is the server there, are there workers, does anything wait for too long, or for a person? Said in words, and as a status for load balancers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from qbull.api.context import Site, now
from qbull.api.endpoint import Call, Endpoint, Nothing, Reply
from qbull.api.queues import counts
from qbull.core import health
from qbull.core.health import Ill
from qbull.errors import ServerError
from qbull.store.read.partition_report import standstill
from qbull.views import queues as wire
from qbull.views.shape import shaped

ANSWER_WITHIN = 2.0
"""Seconds for the server to answer a load balancer's question."""
UNSERVED_AFTER = 30.0
"""Seconds that a job may wait for the first worker to come."""


async def queues_health(call: Call[Nothing, Nothing]) -> Reply:
    return await call.site.health.get()


async def healthz(call: Call[Nothing, Nothing]) -> wire.Alive:
    return wire.Alive(status="ok", message="the API answers")


async def readyz(call: Call[Nothing, Nothing]) -> Reply:
    try:
        async with asyncio.timeout(ANSWER_WITHIN):
            await call.site.store.open()
            await call.site.store.server.call("PING")
    except (ServerError, TimeoutError):
        return Reply(wire.Alive(status="away", message="the server of the jobs cannot be reached"), 503)
    return Reply(wire.Alive(status="ok", message="the server of the jobs answers"))


async def look(site: Site) -> Reply:
    """What is said about the health; made once in a second, however many ask."""
    try:
        async with asyncio.timeout(ANSWER_WITHIN * 2):
            found = await counts(site)
            served = {name for who in (await site.store.workers()).values() for name in who.queues}
            still = await site.halted.get()
    except (ServerError, TimeoutError):
        return _said([health.away()], {})
    return _said([*ills(found, served, site.access.stale_after), *still], found)


def ills(found: dict[str, dict[str, Any]], served: set[str], stale_after: float) -> list[Ill]:
    """What the counts of the queues say."""
    wrong = []
    for name, stats in found.items():
        oldest = stats["oldestWaitingAt"]
        if stats["isPaused"]:
            if stats["waiting"]:
                wrong.append(health.paused(name, stats["waiting"]))
            continue
        if oldest is None:
            continue
        age = (datetime.now(UTC) - datetime.fromisoformat(oldest)).total_seconds()
        if name not in served and age > UNSERVED_AFTER:
            wrong.append(health.unserved(name, stats["waiting"]))
        elif age > stale_after:
            wrong.append(health.stale(name, age))
    return wrong


async def look_for_halted(site: Site) -> list[Ill]:
    """The queues with keys that stand still until somebody deals with a dead letter."""
    found = []
    for queue in await site.queues():
        still = await standstill(site.store, queue.settings)
        if still is not None:
            found.append(health.halted(queue.name, still.keys, still.waiting))
    return found


def _said(wrong: list[Ill], found: dict[str, Any]) -> Reply:
    serious = any(ill.serious for ill in wrong)
    answer = wire.Health(
        status="unhealthy" if serious else "healthy",
        message=health.in_words(wrong),
        problems=[
            wire.Ill(code=ill.code, serious=ill.serious, queue=ill.queue, text=ill.text, values=ill.values)
            for ill in wrong
        ],
        details=shaped(found, dict[str, wire.Stats]),
        timestamp=now(),
    )
    return Reply(answer, 503 if serious else 200)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/health",
        role="open",
        summary="Do the queues work? 503 where they do not; the message says why, and what waits for a person",
        handler=queues_health,
        answer=wire.Health,
        answers=(503,),
    ),
    Endpoint(
        method="GET",
        path="/healthz",
        role="open",
        summary="Does the API answer?",
        handler=healthz,
        answer=wire.Alive,
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        role="open",
        summary="Can the server of the jobs be reached? 503 where it cannot",
        handler=readyz,
        answer=wire.Alive,
        answers=(503,),
    ),
]
