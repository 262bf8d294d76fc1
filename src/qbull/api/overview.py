"""The overview: all queues in one answer. What was done in each minute, how long jobs wait, what is failing now.

It is made once in two seconds for all who look.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

from qbull.api.context import Fresh, Site, now
from qbull.api.endpoint import Call, Endpoint, Nothing
from qbull.api.operations import shown_group
from qbull.core import histograms
from qbull.core.record import moment
from qbull.queue import Queue
from qbull.store.read import histograms as written
from qbull.store.read import minutes as counted
from qbull.views import overview as wire
from qbull.views import render as plain
from qbull.views.queues import Minute, MinutesQuery
from qbull.views.shape import shaped

AGE = 2.0
"""Seconds for which an overview stands."""
AT_ONCE = 4
"""Queues that are read at a time."""
RECENT = timedelta(hours=1)
LOOKED_AT = 500
"""Dead letters of a queue that are looked at, the newest."""
MOST = 8
"""Groups of failures that are shown."""
SPANS = (60, 360, 1440)
"""Minutes back that are kept ready; others are rounded up to one of them."""


async def overview(call: Call[MinutesQuery, Nothing]) -> wire.Overview:
    span = next(span for span in SPANS if span >= call.query.minutes)
    fresh = call.site.overviews.setdefault(span, Fresh(lambda: look(call.site, span), AGE))
    return await fresh.get()


async def look(site: Site, span: int) -> wire.Overview:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(queue: Queue) -> tuple[list[counted.Minute], list[wire.Failing], dict[int, int]]:
        async with turn:
            partitions = await site.app.client().partitions(queue.settings)
            waits = histograms.waits_in(await written.read(site.store, queue.name))
            return await site.minutes.last(queue.name, partitions, span), await _failing(site, queue), waits

    found = await asyncio.gather(*(one(queue) for queue in await site.queues()))
    failing = [group for _, groups, _ in found for group in groups]
    waits: Counter[int] = Counter()
    for _, _, counts in found:
        waits.update(counts)
    lately = site.waits.lately(waits)
    failing.sort(key=lambda group: group.group.count, reverse=True)
    rows = [
        {**one._asdict(), "at": plain.moment(moment(one.at_ms))}
        for one in _sum([rows for rows, _, _ in found])
    ]
    for row in rows:
        del row["at_ms"]
    return wire.Overview(
        timestamp=now(),
        minutes=shaped(rows, list[Minute]),
        wait=wire.Waiting(p50_ms=histograms.quantile(lately, 0.5), p95_ms=histograms.quantile(lately, 0.95)),
        failing=failing[:MOST],
    )


async def _failing(site: Site, queue: Queue) -> list[wire.Failing]:
    """Why jobs failed for good lately."""
    groups = await queue.failures(scan=LOOKED_AT, after=datetime.now(UTC) - RECENT)
    return [
        wire.Failing(queue=queue.name, group=await shown_group(site, queue, group)) for group in groups[:MOST]
    ]


def _sum(queues: list[list[counted.Minute]]) -> list[counted.Minute]:
    """Minute by minute, over all queues."""
    sums: dict[int, list[int]] = {}
    for rows in queues:
        for at_ms, *row in rows:
            before = sums.get(at_ms, [0] * len(row))
            sums[at_ms] = [a + b for a, b in zip(before, row, strict=True)]
    return [counted.Minute(at_ms, *sums[at_ms]) for at_ms in sorted(sums)]


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/overview",
        role="viewer",
        summary="All queues together: what was done in each minute, and what is failing now",
        handler=overview,
        query=MinutesQuery,
        answer=wire.Overview,
    )
]
