"""Overview: all queues in one answer: the verdict, jobs per minute, wait times, current failures.

It is computed at most once in two seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

from qbull.api.auth import Caller
from qbull.api.context import ApiContext, CachedValue, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.operations import failure_group_view, failure_groups
from qbull.api.recent_waits import RecentWaits
from qbull.core import histograms
from qbull.core.job_filter import JobFilterArguments
from qbull.queue import Queue
from qbull.store.read import histograms as written
from qbull.store.read import minutes as counted
from qbull.views import overview as views
from qbull.views.health import VerdictView
from qbull.views.queues import MinutesQuery, MinuteView

OVERVIEW_CACHE_SECONDS = 2.0
"""How long an overview is cached."""
MAX_CONCURRENT_OVERVIEW_QUEUES = 4
"""Queues that are read concurrently."""
RECENT_FAILURES_PERIOD = timedelta(hours=1)
MAX_SCANNED_DEAD_LETTERS = 500
"""Dead letters read of each queue, the newest."""
MAX_FAILING_GROUPS = 8
"""Groups of failures shown."""
MAX_CACHED_OVERVIEWS = 300
"""Overviews of different periods and scopes."""
OVERVIEW_SPANS_MINUTES = (60, 360, 1440)
"""The periods that are cached; a request is rounded up to one of them."""


async def overview(call: ApiCall[MinutesQuery, Nothing]) -> views.Overview:
    span = next(span for span in OVERVIEW_SPANS_MINUTES if span >= call.query.minutes)
    context, caller = call.context, call.caller
    if len(context.overviews) > MAX_CACHED_OVERVIEWS:
        context.overviews.clear()
        context.waits.clear()
    fresh = context.overviews.setdefault(
        (span, caller.queues),
        CachedValue(lambda: read_overview(context, caller, span), OVERVIEW_CACHE_SECONDS),
    )
    return await fresh.get()


async def read_overview(context: ApiContext, caller: Caller, span: int) -> views.Overview:
    """The overview of the queues in the scope of a caller; all callers of the same scope see the same."""
    turn = asyncio.Semaphore(MAX_CONCURRENT_OVERVIEW_QUEUES)

    async def one(queue: Queue) -> tuple[list[counted.MinuteCounts], list[views.FailingView], dict[int, int]]:
        async with turn:
            partitions = await context.app._client().router.partitions(queue.settings)
            waits = histograms.waits_in(await written.read(context.store, queue.name))
            return (
                await context.minutes.last(queue.name, partitions, span),
                await _failing(context, queue),
                waits,
            )

    found = await asyncio.gather(*(one(queue) for queue in await context.queues_of(caller)))
    failing = [group for _, groups, _ in found for group in groups]
    waits: Counter[int] = Counter()
    for _, _, counts in found:
        waits.update(counts)
    lately = context.waits.setdefault(caller.queues, RecentWaits()).lately(waits)
    problems = [
        one
        for one in (await context.health.get()).problems
        if not caller.queues or (one.queue is not None and caller.may_use(one.queue))
    ]
    failing.sort(key=lambda group: group.group.count, reverse=True)
    return views.Overview(
        timestamp=now(),
        verdict=VerdictView.of(problems),
        minutes=[MinuteView.of(minute) for minute in _sum([rows for rows, _, _ in found])],
        wait=views.WaitingView(
            p50_ms=histograms.quantile(lately, 0.5), p95_ms=histograms.quantile(lately, 0.95)
        ),
        failing=failing[:MAX_FAILING_GROUPS],
    )


async def _failing(context: ApiContext, queue: Queue) -> list[views.FailingView]:
    """The reasons of recent permanent failures."""
    lately: JobFilterArguments = {"after": datetime.now(UTC) - RECENT_FAILURES_PERIOD}
    groups = await failure_groups(context, queue, MAX_SCANNED_DEAD_LETTERS, lately)
    return [
        # One overview is shown to all callers.
        views.FailingView(queue=queue.name, group=await failure_group_view(context, queue, group, None))
        for group in groups[:MAX_FAILING_GROUPS]
    ]


def _sum(queues: list[list[counted.MinuteCounts]]) -> list[counted.MinuteCounts]:
    """The sum over all queues, minute by minute."""
    sums: dict[int, list[int]] = {}
    for rows in queues:
        for at_ms, *row in rows:
            before = sums.get(at_ms, [0] * len(row))
            sums[at_ms] = [a + b for a, b in zip(before, row, strict=True)]
    return [counted.MinuteCounts(at_ms, *sums[at_ms]) for at_ms in sorted(sums)]


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/overview",
        role="viewer",
        scope="queues",
        summary="All queues together: the verdict, jobs per minute, wait times and current failures",
        handler=overview,
        query=MinutesQuery,
        answer=views.Overview,
    )
]
