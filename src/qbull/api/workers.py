"""Workers: live processes, their running jobs, and the servers that store the jobs."""

from __future__ import annotations

import math
import platform
import time
from functools import partial
from heapq import nsmallest

import qbull
from qbull.api.auth import Caller
from qbull.api.context import ApiContext, CachedValue, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.core.digits import whole_number
from qbull.core.job_info import JobInfo
from qbull.core.record import to_datetime
from qbull.manage.slow import all_running
from qbull.store.connection.requirements import read_info, server_settings
from qbull.store.connection.server import Server
from qbull.store.read.health import LostRegistration, lost_registrations
from qbull.store.read.inspect import server_time
from qbull.store.read.usage import worker_usage
from qbull.views import workers as views
from qbull.views.shape import instant, view_of

MAX_SHOWN_RUNNING_JOBS = 200
"""Running jobs shown, those that have run longest."""
MAX_CACHED_RUNNING_LISTS = 300
"""Lists of different scopes."""
RUNNING_CACHE_SECONDS = 1.0
"""How long a list of running jobs is cached: the longest are known only if all are read."""


async def workers(call: ApiCall[Nothing, Nothing]) -> views.WorkersView:
    store = call.context.store
    living = await store.workers()
    usage = await worker_usage(store, list(living))
    busy = (await call.context.health.get()).busy
    shown = [views.WorkerView.of(id, who, usage.get(id), busy) for id, who in sorted(living.items())]
    if call.caller.queues:
        shown = [mine for one in shown if (mine := _in_scope(one, call.caller)).queues]
    lost = [
        _lost_view(one, [name for name in one.member.queues if call.caller.may_use(name)])
        for one in await lost_registrations(store)
    ]
    lost.sort(key=lambda one: one.lost_at, reverse=True)
    return views.WorkersView(timestamp=now(), workers=shown, lost=[one for one in lost if one.queues])


def _lost_view(lost: LostRegistration, queues: list[str]) -> views.LostWorkerView:
    return view_of(
        views.LostWorkerView,
        lost.member,
        id=lost.worker,
        lost_at=to_datetime(lost.at_ms),
        started_at=instant(lost.member.started_ms or None),
        queues=sorted(queues),
    )


def _in_scope(worker: views.WorkerView, caller: Caller) -> views.WorkerView:
    """A worker with the queues that are in the scope of a caller. Others may have blocked its event loop."""
    own = {name: serving for name, serving in worker.queues.items() if caller.may_use(name)}
    return view_of(views.WorkerView, worker, queues=own, blocked=None)


async def running(call: ApiCall[Nothing, Nothing]) -> views.RunningView:
    context, caller = call.context, call.caller
    if len(context.running) > MAX_CACHED_RUNNING_LISTS:
        context.running.clear()
    fresh = context.running.setdefault(
        caller.queues, CachedValue(lambda: _read_running(context, caller), RUNNING_CACHE_SECONDS)
    )
    return await fresh.get()


async def _read_running(context: ApiContext, caller: Caller) -> views.RunningView:
    runs = await all_running(await context.queues_of(caller))
    shown = nsmallest(MAX_SHOWN_RUNNING_JOBS, runs, key=_start_order)
    return views.RunningView(
        timestamp=now(),
        jobs=[view_of(views.RunningJobView, info, worker=info.worker or "?") for info in shown],
        more=len(runs) > len(shown),
        total=len(runs),
    )


def _start_order(info: JobInfo) -> tuple[float, str]:
    """The longest run first."""
    return (info.started_at.timestamp() if info.started_at is not None else math.inf, info.id)


async def system(call: ApiCall[Nothing, Nothing]) -> views.SystemView:
    store = call.context.store
    primaries = await store.primaries()
    asked = time.time()
    theirs = await server_time(store)
    ours = (asked + time.time()) / 2
    return views.SystemView(
        timestamp=now(),
        app=call.context.app.prefix,
        version=qbull.__version__,
        python=platform.python_version(),
        topology=store.server.address.topology,
        durability=call.context.app.durability,
        servers=[await store.retrying(partial(_server_view, primary)) for primary in primaries],
        clock_skew_ms=round((theirs - ours) * 1000, 1),
    )


async def _server_view(server: Server) -> views.ServerView:
    info = await read_info(server)
    said = await server_settings(server, "appendfsync")

    def number(name: str) -> int:
        return whole_number(info.get(name, "0")) or 0

    return views.ServerView(
        address=server.address.shown,
        product="Valkey" if "valkey_version" in info else "Redis",
        version=info.get("valkey_version") or info.get("redis_version", "?"),
        uptime_seconds=number("uptime_in_seconds"),
        used_memory=number("used_memory"),
        max_memory=number("maxmemory"),
        eviction=info.get("maxmemory_policy", "?"),
        append_only=info.get("aof_enabled") == "1",
        fsync=said.get("appendfsync"),
        replicas=number("connected_slaves"),
        connected_clients=number("connected_clients"),
        commands_per_second=number("instantaneous_ops_per_sec"),
        last_save_ok=info.get("aof_last_write_status", "ok") == "ok"
        and info.get("rdb_last_bgsave_status", "ok") == "ok",
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/workers",
        role="viewer",
        scope="queues",
        summary="List the live worker processes and the partitions that they read",
        handler=workers,
        answer=views.WorkersView,
    ),
    Endpoint(
        method="GET",
        path="/api/running",
        role="viewer",
        scope="queues",
        summary="List the running jobs, the longest first",
        handler=running,
        answer=views.RunningView,
    ),
    Endpoint(
        method="GET",
        path="/api/system",
        role="viewer",
        summary="Show the job servers: memory, persistence, replicas",
        handler=system,
        answer=views.SystemView,
    ),
]
