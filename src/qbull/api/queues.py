"""Queues: what there is and how much of it; pause and resume, settings, minutes, partitions, keys."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET

from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.jobs import job_view
from qbull.core.ids import check_key
from qbull.core.job_info import JobInfo
from qbull.core.rate import Rate
from qbull.core.retry import Retry
from qbull.core.route import digest
from qbull.queue import Queue
from qbull.store.read import lane
from qbull.store.read.partition_report import partition_report
from qbull.views import access
from qbull.views import queues as wire
from qbull.views.shape import view_of

MAX_CONCURRENT_COUNTS = 8
"""Queues whose counts are read at a time."""


async def read_counts(site: ApiContext) -> dict[str, wire.StatsView]:
    """The counts of all queues by name."""
    turn = asyncio.Semaphore(MAX_CONCURRENT_COUNTS)

    async def one(queue: Queue) -> wire.StatsView:
        async with turn:
            return wire.StatsView.of(queue.name, await queue.stats())

    found = await asyncio.gather(*(one(queue) for queue in await site.queues()))
    return {stats.name: stats for stats in found}


async def all_stats(call: ApiCall[Nothing, Nothing]) -> wire.AllStatsView:
    found = await read_counts(call.site)
    return wire.AllStatsView(timestamp=now(), queues=found)


async def queue_stats(call: ApiCall[Nothing, Nothing]) -> wire.QueueStatsView:
    queue = await call.site.queue(call.path["queue"])
    stats = wire.StatsView.of(queue.name, await queue.stats())
    return view_of(wire.QueueStatsView, stats, timestamp=now())


async def queue_details(call: ApiCall[Nothing, Nothing]) -> wire.QueueView:
    queue = await call.site.queue(call.path["queue"])
    store, settings = call.site.store, queue.settings
    names = sorted({*queue.tasks, *await store.tasks(queue.name)})
    members = await store.workers()
    serving = [who.queues[queue.name] for who in members.values() if queue.name in who.queues]
    return wire.QueueView(
        timestamp=now(),
        name=queue.name,
        stats=wire.StatsView.of(queue.name, await queue.stats()),
        partitions=(await call.site.app._client().router.layout(settings)).partitions,
        order=settings.order,
        on_failed=settings.on_failed,
        lane=None if settings.lane is None else msgspec.to_builtins(settings.lane),
        timeout=settings.timeout,
        keep=msgspec.to_builtins(settings.keep),
        workers=len(serving),
        slots=sum(one.concurrency for one in serving),
        tasks=[wire.TaskView(name=name, arguments=_arguments(queue, name)) for name in names],
        declared_here=queue.name in call.site.app.queues,
    )


def _arguments(queue: Queue, task: str) -> dict[str, Any] | None:
    spec = queue.tasks.get(task)
    return None if spec is None else spec.signature.schema()


async def pause(call: ApiCall[Nothing, Nothing]) -> access.DoneView:
    queue = await call.site.queue(call.path["queue"])
    await queue.pause(by=call.caller.name)
    return access.DoneView(message=f'queue "{queue.name}": paused', timestamp=now())


async def resume(call: ApiCall[Nothing, Nothing]) -> access.DoneView:
    queue = await call.site.queue(call.path["queue"])
    await queue.resume(by=call.caller.name)
    return access.DoneView(message=f'queue "{queue.name}": goes on', timestamp=now())


async def settings(call: ApiCall[Any, Any]) -> wire.SettingsView:
    queue = await call.site.queue(call.path["queue"])
    return wire.SettingsView.of(queue.name, await queue.live(), await queue.changes(), timestamp=now())


async def change_settings(call: ApiCall[Nothing, wire.NewSettingsBody]) -> wire.SettingsView:
    queue, asked = await call.site.queue(call.path["queue"]), call.body
    values: dict[str, Any] = {}
    if asked.concurrency is not UNSET:
        values["concurrency"] = asked.concurrency
    if asked.max_active is not UNSET:
        values["max_active"] = asked.max_active
    if asked.rate is not UNSET:
        values["rate"] = None if asked.rate is None else Rate(asked.rate.count, asked.rate.per)
    if isinstance(asked.retry, wire.RetryBody):
        values["retry"] = _retry(asked.retry)
    call.notes.update(msgspec.to_builtins(values))
    await queue.configure(**values, by=call.caller.name)
    return await settings(call)


def _retry(asked: wire.RetryBody) -> Retry:
    given: dict[str, Any] = {
        name: value for name in asked.__struct_fields__ if (value := getattr(asked, name)) is not None
    }
    if "delays" in given:
        given["delays"] = tuple(given["delays"])
    return Retry(**given)


async def reset_settings(call: ApiCall[wire.ResetQuery, Nothing]) -> wire.SettingsView:
    queue, one = await call.site.queue(call.path["queue"]), call.query.setting
    call.notes["setting"] = one or "all"
    await queue.reset(*([one] if one is not None else []), by=call.caller.name)
    return await settings(call)


async def queue_minutes(call: ApiCall[wire.MinutesQuery, Nothing]) -> wire.MinutesView:
    queue = await call.site.queue(call.path["queue"])
    partitions = await call.site.app._client().router.partitions(queue.settings)
    found = await call.site.minutes.last(queue.name, partitions, call.query.minutes)
    minutes = [wire.MinuteView.of(minute) for minute in found]
    return wire.MinutesView(timestamp=now(), queue=queue.name, minutes=minutes)


async def queue_partitions(call: ApiCall[Nothing, Any]) -> wire.PartitionsView:
    queue, store = await call.site.queue(call.path["queue"]), call.site.store
    found = await partition_report(store, queue.settings)
    left = await queue.repartitioning()
    return wire.PartitionsView.of(found, timestamp=now(), repartitioning=left)


async def repartition(call: ApiCall[Nothing, wire.NewPartitionsBody]) -> wire.PartitionsView:
    queue = await call.site.queue(call.path["queue"])
    call.notes["partitions"] = call.body.partitions
    await queue.repartition(call.body.partitions)
    return await queue_partitions(call)


async def queue_key(call: ApiCall[wire.KeyQuery, Nothing]) -> wire.KeyView:
    queue, key = await call.site.queue(call.path["queue"]), check_key(call.path["key"])
    client = call.site.app._client()
    layout = await client.router.layout(queue.settings)
    partition = client.router.partition(queue.settings, layout.home(digest(key)))
    line = await lane.lane_status(partition, digest(key), call.query.limit)

    async def shown(id: str) -> JobInfo | None:
        info: JobInfo | None = await queue.job(id).info()
        return None if info is None else job_view(call, info)

    waiting = [one for id in line.first if (one := await shown(id)) is not None]
    return wire.KeyView(
        timestamp=now(),
        queue=queue.name,
        key=key,
        partition=partition.shown,
        holder=None if line.holder is None else await shown(line.holder),
        halted=line.halted,
        waiting=line.waiting,
        jobs=waiting,
    )


QUEUE_PATH = "/api/queues/{queue}"

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/stats",
        role="viewer",
        summary="The counts of all queues",
        handler=all_stats,
        answer=wire.AllStatsView,
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/stats",
        role="viewer",
        summary="The counts of one queue",
        handler=queue_stats,
        answer=wire.QueueStatsView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=QUEUE_PATH,
        role="viewer",
        summary="What a queue is: how it was declared, who serves it, its tasks and their arguments",
        handler=queue_details,
        answer=wire.QueueView,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path=f"{QUEUE_PATH}/pause",
        role="admin",
        summary="Let nothing more begin",
        handler=pause,
        answer=access.DoneView,
        problems=(404,),
        audit="pause queue",
    ),
    Endpoint(
        method="POST",
        path=f"{QUEUE_PATH}/resume",
        role="admin",
        summary="Go on after a pause",
        handler=resume,
        answer=access.DoneView,
        problems=(404,),
        audit="resume queue",
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/settings",
        role="viewer",
        summary="What is in force, and who has changed what",
        handler=settings,
        answer=wire.SettingsView,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=f"{QUEUE_PATH}/settings",
        role="admin",
        summary="Change settings for all workers, until they are reset",
        handler=change_settings,
        body=wire.NewSettingsBody,
        rule={"minProperties": 1},
        answer=wire.SettingsView,
        problems=(404,),
        audit="change settings",
    ),
    Endpoint(
        method="DELETE",
        path=f"{QUEUE_PATH}/settings",
        role="admin",
        summary="Back to what the code says",
        handler=reset_settings,
        query=wire.ResetQuery,
        answer=wire.SettingsView,
        problems=(404,),
        audit="reset settings",
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/metrics",
        role="viewer",
        summary="What was counted in each of the last minutes",
        handler=queue_minutes,
        query=wire.MinutesQuery,
        answer=wire.MinutesView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/partitions",
        role="viewer",
        summary="Who reads which partition, and what waits there",
        handler=queue_partitions,
        answer=wire.PartitionsView,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=f"{QUEUE_PATH}/partitions",
        role="admin",
        summary="Change the number of partitions while the queue is used; it is in force at once",
        handler=repartition,
        body=wire.NewPartitionsBody,
        answer=wire.PartitionsView,
        problems=(404, 409),
        audit="repartition",
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/keys/{{key}}",
        role="viewer",
        summary="The line behind one key",
        handler=queue_key,
        query=wire.KeyQuery,
        answer=wire.KeyView,
        problems=(404,),
    ),
]
