"""Overview: all queues in one answer: the verdict, jobs per minute, wait times, current failures.

It is computed at most once in two seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import NamedTuple

from qbull.api.auth import Caller
from qbull.api.context import ApiContext, CachedValue, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.errors import kind_views, recent_kinds
from qbull.api.operations import failure_group_view
from qbull.core import histograms
from qbull.core.cascades import root_cause
from qbull.core.failures import fingerprint
from qbull.core.latency import latest, recent_waits
from qbull.manage.search import FailureGroup
from qbull.queue import Queue
from qbull.store.read import minutes as counted
from qbull.store.read.error_kinds import ErrorKind
from qbull.store.read.inspect import server_time
from qbull.views import overview as views
from qbull.views.health import VerdictView
from qbull.views.jobs import FailureGroupView
from qbull.views.queues import MinutesQuery, MinuteView
from qbull.views.shape import view_of

OVERVIEW_CACHE_SECONDS = 2.0
"""How long an overview is cached."""
MAX_CONCURRENT_OVERVIEW_QUEUES = 4
"""Queues that are read concurrently."""
RECENT_FAILURES_MINUTES = 60
RECENT_WAITS_MINUTES = 5
"""The minutes whose wait times are reported, the current one included."""
OVERVIEW_CASCADES_WAIT_SECONDS = 0.3
"""How long an overview waits for dead letters to be read; the next one has them."""
MAX_FAILING_GROUPS = 8
"""Groups of failures shown."""
MAX_CACHED_OVERVIEWS = 300
"""Overviews of different periods and scopes."""
OVERVIEW_SPANS_MINUTES = (60, 360, 1440)
"""The periods that are cached; a request is rounded up to one of them."""


class FailingJobs(NamedTuple):
    """Jobs of a queue that failed lately: by kind, and those that failed with others of their flow."""

    queue: Queue
    kinds: list[ErrorKind]
    cascades: list[FailureGroup]


async def overview(call: ApiCall[MinutesQuery, Nothing]) -> views.Overview:
    span = next(span for span in OVERVIEW_SPANS_MINUTES if span >= call.query.minutes)
    context, caller = call.context, call.caller
    if len(context.overviews) > MAX_CACHED_OVERVIEWS:
        context.overviews.clear()
    fresh = context.overviews.setdefault(
        (span, caller.queues),
        CachedValue(lambda: read_overview(context, caller, span), OVERVIEW_CACHE_SECONDS),
    )
    return await fresh.get()


async def read_overview(context: ApiContext, caller: Caller, span: int) -> views.Overview:
    """The overview of the queues in the scope of a caller; all callers of the same scope see the same."""
    turn = asyncio.Semaphore(MAX_CONCURRENT_OVERVIEW_QUEUES)
    now_ms = int(await server_time(context.store) * 1000)

    async def one(queue: Queue) -> tuple[list[counted.MinuteCounts], FailingJobs, Counter[int]]:
        async with turn:
            partitions = await context.app._client().router.partitions(queue.settings)
            slices = await context.latency_reader.read(
                context.store, queue.name, latest(now_ms, "1h"), now_ms
            )
            return (
                await context.minutes.last(queue.name, partitions, span),
                await _failing(context, queue),
                recent_waits(slices, now_ms // 60_000 - RECENT_WAITS_MINUTES + 1),
            )

    found = await asyncio.gather(*(one(queue) for queue in await context.queues_of(caller)))
    failing = await _fold(context, [failing for _, failing, _ in found])
    problems = [
        one
        for one in (await context.health.get()).problems
        if not caller.queues or (one.queue is not None and caller.may_use(one.queue))
    ]
    failing.sort(key=lambda one: (_is_known(one), -one.group.count))
    return views.Overview(
        timestamp=now(),
        verdict=VerdictView.of(problems),
        minutes=[MinuteView.of(minute) for minute in _sum([rows for rows, _, _ in found])],
        wait=_waiting({failing.queue.name: waits for _, failing, waits in found}),
        cascades=sum(group.count for _, one, _ in found for group in one.cascades),
        failing=failing[:MAX_FAILING_GROUPS],
    )


def _waiting(of_queues: dict[str, Counter[int]]) -> views.WaitingView:
    """The waits of all queues together, and those of the slowest, which would vanish in them."""
    together: Counter[int] = Counter()
    for waits in of_queues.values():
        together.update(waits)
    p95 = {name: histograms.quantile(waits, 0.95) for name, waits in of_queues.items()}
    slowest = max(
        (name for name, ms in p95.items() if ms is not None), key=lambda name: p95[name] or 0, default=None
    )
    return views.WaitingView(
        p50_ms=histograms.quantile(together, 0.5),
        p95_ms=histograms.quantile(together, 0.95),
        slowest_queue=slowest,
        slowest_p95_ms=None if slowest is None else p95[slowest],
    )


async def _failing(context: ApiContext, queue: Queue) -> FailingJobs:
    """The kinds of recent permanent failures, counted as they happened, and the recent cascades."""
    kinds = [kind for kind in await recent_kinds(queue, RECENT_FAILURES_MINUTES) if kind.total]
    tally = await context.dead_letters(queue).soon(OVERVIEW_CASCADES_WAIT_SECONDS)
    since = int(time.time()) // 60 - RECENT_FAILURES_MINUTES + 1
    return FailingJobs(queue, kinds, tally.cascades_since(since))


async def _fold(context: ApiContext, failing: list[FailingJobs]) -> list[views.FailingView]:
    """The failures without cascades: a job of a flow that failed with another counts under its error."""
    known = {kind.fingerprint for one in failing for kind in one.kinds}
    cascades: Counter[str] = Counter()
    shown = []
    for one in failing:
        for group in one.cascades:
            cause = fingerprint(root_cause(group.last_error) or "")
            if cause in known:
                cascades[cause] += group.count
            else:
                view = await failure_group_view(context, one.queue, group, None)
                shown.append(views.FailingView(queue=one.queue.name, group=view, cascades=0))
    # One overview is shown to all callers.
    for one in failing:
        counted_kinds = await kind_views(context, one.queue, one.kinds[:MAX_FAILING_GROUPS], None)
        for kind, counted_kind in zip(one.kinds, counted_kinds, strict=False):
            tasks = [counted_kind.task] if counted_kind.task is not None else []
            shown.append(
                views.FailingView(
                    queue=one.queue.name,
                    group=view_of(FailureGroupView, counted_kind, tasks=tasks, cascade=False),
                    cascades=cascades.pop(kind.fingerprint, 0),
                    acknowledged=counted_kind.acknowledged,
                )
            )
    return shown


def _is_known(one: views.FailingView) -> bool:
    """Whether somebody knows of these failures, and they have not returned."""
    return one.acknowledged is not None and one.acknowledged.returned is None


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
