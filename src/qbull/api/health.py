"""Health: is the server there, are there workers, does anything wait for too long? Said in words, and as a status for load balancers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from qbull.api.endpoint import Call, Endpoint, Nothing, Reply
from qbull.api.queues import counts
from qbull.api.site import Site, now
from qbull.api.wire import queues as wire
from qbull.api.wire.shape import shaped
from qbull.errors import ServerError

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
    except (ServerError, TimeoutError):
        return _said(["the server of the jobs cannot be reached"], {})
    return _said(_ills(found, served, site.access.stale_after), found)


def _ills(found: dict[str, dict[str, Any]], served: set[str], stale_after: float) -> list[str]:
    ills = []
    for name, stats in found.items():
        oldest = stats["oldestWaitingAt"]
        if oldest is None or stats["isPaused"]:
            continue
        age = (datetime.now(UTC) - datetime.fromisoformat(oldest)).total_seconds()
        if name not in served and age > UNSERVED_AFTER:
            ills.append(f'queue "{name}": {stats["waiting"]} jobs wait and no worker serves it')
        elif age > stale_after:
            ills.append(f'queue "{name}" is stale: its oldest waiting job could have run {age:.0f} s ago')
    return ills


def _said(ills: list[str], found: dict[str, Any]) -> Reply:
    health = wire.Health(
        status="unhealthy" if ills else "healthy",
        message="; ".join(ills) or "all queues work normally",
        details=shaped(found, dict[str, wire.Stats]),
        timestamp=now(),
    )
    return Reply(health, 503 if ills else 200)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/health",
        role="open",
        summary="Do the queues work? 503 where they do not; the message says why",
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
