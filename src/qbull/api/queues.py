"""Queues: counts, details, pause and resume, settings, minutes, partitions, keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET

from qbull.api.auth import Caller
from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.jobs import job_view
from qbull.config import Keep
from qbull.core.ids import check_key
from qbull.core.job_info import JobInfo
from qbull.core.rate import Rate
from qbull.core.retry import Retry
from qbull.core.route import digest
from qbull.queue import Queue
from qbull.store.audit import within_entry
from qbull.store.read import lane
from qbull.store.read.partition_report import partition_report
from qbull.store.verbs.descriptions import KnownTask, TaskDescriptions
from qbull.views import access
from qbull.views import live_settings as setting_views
from qbull.views import partitions as partition_views
from qbull.views import queues as views
from qbull.views.shape import view_of

MAX_CONCURRENT_COUNTS = 8
"""Queues whose counts are read concurrently."""


async def read_counts(context: ApiContext, caller: Caller) -> dict[str, views.StatsView]:
    """The counts of the caller's queues by name."""
    turn = asyncio.Semaphore(MAX_CONCURRENT_COUNTS)

    async def one(queue: Queue) -> views.StatsView:
        async with turn:
            return views.StatsView.of(queue.name, await queue.stats())

    found = await asyncio.gather(*(one(queue) for queue in await context.queues_of(caller)))
    return {stats.name: stats for stats in found}


async def all_stats(call: ApiCall[Nothing, Nothing]) -> views.AllStatsView:
    found = await read_counts(call.context, call.caller)
    return views.AllStatsView(timestamp=now(), queues=found)


async def queue_stats(call: ApiCall[Nothing, Nothing]) -> views.QueueStatsView:
    queue = await call.context.queue(call.path["queue"])
    stats = views.StatsView.of(queue.name, await queue.stats())
    return view_of(views.QueueStatsView, stats, timestamp=now())


async def queue_details(call: ApiCall[Nothing, Nothing]) -> views.QueueView:
    queue = await call.context.queue(call.path["queue"])
    store, settings = call.context.store, queue.settings
    names = sorted({*queue.tasks, *await store.tasks(queue.name)})
    members = await store.workers()
    serving = [who.queues[queue.name] for who in members.values() if queue.name in who.queues]
    return views.QueueView(
        timestamp=now(),
        name=queue.name,
        stats=views.StatsView.of(queue.name, await queue.stats()),
        partitions=(await call.context.app._client().router.layout(settings)).partitions,
        order=settings.order,
        on_failed=settings.on_failed,
        lane=None if settings.lane is None else msgspec.to_builtins(settings.lane),
        timeout=settings.timeout,
        keep=msgspec.to_builtins(settings.keep),
        workers=len(serving),
        slots=sum(one.concurrency for one in serving),
        tasks=[
            views.TaskView(name=task.name, arguments=_arguments(queue, task))
            for task in await TaskDescriptions(store).of(queue.name, names)
        ],
        declared_here=queue.name in call.context.app.queues,
    )


def _arguments(queue: Queue, task: KnownTask) -> dict[str, Any] | None:
    """The schema of a task's arguments: as the code has it, else as workers have published it."""
    spec = queue.tasks.get(task.name)
    if spec is not None:
        return spec.signature.schema()
    return task.versions[0].arguments if task.versions else None


async def pause(call: ApiCall[Nothing, Nothing]) -> access.DoneView:
    queue = await call.context.queue(call.path["queue"])
    await queue.pause(by=call.caller.name)
    return access.DoneView(message=f'queue "{queue.name}": paused', timestamp=now())


async def resume(call: ApiCall[Nothing, Nothing]) -> access.DoneView:
    queue = await call.context.queue(call.path["queue"])
    await queue.resume(by=call.caller.name)
    return access.DoneView(message=f'queue "{queue.name}": resumed', timestamp=now())


async def pause_all(call: ApiCall[Nothing, Nothing]) -> access.DoneView:
    queues = await call.context.queues_of(call.caller)
    for queue in queues:
        with _one_of_many(call, queue):
            await queue.pause(by=call.caller.name)
    return access.DoneView(message=f"paused {_count(queues)}", timestamp=now())


async def resume_all(call: ApiCall[Nothing, Nothing]) -> access.DoneView:
    queues = await call.context.queues_of(call.caller)
    for queue in queues:
        with _one_of_many(call, queue):
            await queue.resume(by=call.caller.name)
    return access.DoneView(message=f"resumed {_count(queues)}", timestamp=now())


@contextmanager
def _one_of_many(call: ApiCall[Nothing, Nothing], queue: Queue) -> Iterator[None]:
    """Name a queue in the audit entry of a call for many, if the call has changed it."""
    facts: dict[str, Any] = {}
    with within_entry(facts):
        yield
    if facts["after"]:
        call.audit_details.setdefault("changed", []).append(queue.name)


def _count(queues: Sequence[Queue]) -> str:
    return f"{len(queues)} queue{'s' * (len(queues) != 1)}"


async def settings(call: ApiCall[Any, Any]) -> setting_views.SettingsView:
    queue = await call.context.queue(call.path["queue"])
    return setting_views.SettingsView.of(
        queue.name, await queue.live(), await queue.changes(), timestamp=now()
    )


async def change_settings(
    call: ApiCall[Nothing, setting_views.NewSettingsBody],
) -> setting_views.SettingsView:
    queue, asked = await call.context.queue(call.path["queue"]), call.body
    values: dict[str, Any] = {}
    if asked.concurrency is not UNSET:
        values["concurrency"] = asked.concurrency
    if asked.max_active is not UNSET:
        values["max_active"] = asked.max_active
    if asked.rate is not UNSET:
        values["rate"] = None if asked.rate is None else Rate(asked.rate.count, asked.rate.per)
    if isinstance(asked.retry, setting_views.RetryBody):
        values["retry"] = _retry(asked.retry)
    if asked.timeout is not UNSET:
        values["timeout"] = asked.timeout
    if isinstance(asked.keep, setting_views.KeepBody):
        values["keep"] = Keep(**msgspec.structs.asdict(asked.keep))
    call.audit_details.update(msgspec.to_builtins(values))
    await queue.configure(**values, by=call.caller.name)
    return await settings(call)


def _retry(asked: setting_views.RetryBody) -> Retry:
    given: dict[str, Any] = {
        name: value for name in asked.__struct_fields__ if (value := getattr(asked, name)) is not None
    }
    if "delays" in given:
        given["delays"] = tuple(given["delays"])
    return Retry(**given)


async def reset_settings(call: ApiCall[setting_views.ResetQuery, Nothing]) -> setting_views.SettingsView:
    queue, one = await call.context.queue(call.path["queue"]), call.query.setting
    call.audit_details["setting"] = one or "all"
    await queue.reset(*([one] if one is not None else []), by=call.caller.name)
    return await settings(call)


async def queue_minutes(call: ApiCall[views.MinutesQuery, Nothing]) -> views.MinutesView:
    queue = await call.context.queue(call.path["queue"])
    partitions = await call.context.app._client().router.partitions(queue.settings)
    found = await call.context.minutes.last(queue.name, partitions, call.query.minutes)
    minutes = [views.MinuteView.of(minute) for minute in found]
    return views.MinutesView(timestamp=now(), queue=queue.name, minutes=minutes)


async def queue_partitions(call: ApiCall[Nothing, Any]) -> partition_views.PartitionsView:
    queue, store = await call.context.queue(call.path["queue"]), call.context.store
    found = await partition_report(store, queue.settings)
    left = await queue.repartitioning()
    return partition_views.PartitionsView.of(found, timestamp=now(), repartitioning=left)


async def repartition(
    call: ApiCall[Nothing, partition_views.NewPartitionsBody],
) -> partition_views.PartitionsView:
    queue = await call.context.queue(call.path["queue"])
    call.audit_details["partitions"] = call.body.partitions
    await queue.repartition(call.body.partitions)
    return await queue_partitions(call)


async def queue_key(call: ApiCall[partition_views.KeyQuery, Nothing]) -> partition_views.KeyView:
    queue, key = await call.context.queue(call.path["queue"]), check_key(call.path["key"])
    client = call.context.app._client()
    layout = await client.router.layout(queue.settings)
    partition = client.router.partition(queue.settings, layout.home(digest(key)))
    line = await lane.lane_status(partition, digest(key), call.query.limit)

    async def shown(id: str) -> JobInfo | None:
        info: JobInfo | None = await queue.job(id).info()
        return None if info is None else job_view(call, info)

    waiting = [one for id in line.first if (one := await shown(id)) is not None]
    return partition_views.KeyView(
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
        scope="queues",
        summary="Count the jobs of all queues by state",
        handler=all_stats,
        answer=views.AllStatsView,
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/stats",
        role="viewer",
        summary="Count the jobs of one queue by state",
        handler=queue_stats,
        answer=views.QueueStatsView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=QUEUE_PATH,
        role="viewer",
        summary="Show a queue: settings, workers, tasks and their arguments",
        handler=queue_details,
        answer=views.QueueView,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/pause",
        role="operator",
        scope="queues",
        summary="Pause all queues of the caller: no more jobs start",
        handler=pause_all,
        answer=access.DoneView,
        audit="pause all queues",
    ),
    Endpoint(
        method="POST",
        path="/api/resume",
        role="operator",
        scope="queues",
        summary="Resume all paused queues of the caller",
        handler=resume_all,
        answer=access.DoneView,
        audit="resume all queues",
    ),
    Endpoint(
        method="POST",
        path=f"{QUEUE_PATH}/pause",
        role="operator",
        summary="Pause a queue: no more jobs start",
        handler=pause,
        answer=access.DoneView,
        problems=(404,),
        audit="pause queue",
    ),
    Endpoint(
        method="POST",
        path=f"{QUEUE_PATH}/resume",
        role="operator",
        summary="Resume a paused queue",
        handler=resume,
        answer=access.DoneView,
        problems=(404,),
        audit="resume queue",
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/settings",
        role="viewer",
        summary="Show the settings in force and their changes",
        handler=settings,
        answer=setting_views.SettingsView,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=f"{QUEUE_PATH}/settings",
        role="admin",
        summary="Change settings for all workers, until they are reset",
        handler=change_settings,
        body=setting_views.NewSettingsBody,
        rule={"minProperties": 1},
        answer=setting_views.SettingsView,
        problems=(404,),
        audit="change settings",
    ),
    Endpoint(
        method="DELETE",
        path=f"{QUEUE_PATH}/settings",
        role="admin",
        summary="Reset settings to the values in the code",
        handler=reset_settings,
        query=setting_views.ResetQuery,
        answer=setting_views.SettingsView,
        problems=(404,),
        audit="reset settings",
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/metrics",
        role="viewer",
        summary="Jobs per minute of a queue",
        handler=queue_minutes,
        query=views.MinutesQuery,
        answer=views.MinutesView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/partitions",
        role="viewer",
        summary="Show the partitions of a queue, their readers and their jobs",
        handler=queue_partitions,
        answer=partition_views.PartitionsView,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=f"{QUEUE_PATH}/partitions",
        role="admin",
        summary="Change the number of partitions of a running queue; takes effect at once",
        handler=repartition,
        body=partition_views.NewPartitionsBody,
        answer=partition_views.PartitionsView,
        problems=(404, 409),
        audit="repartition",
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/keys/{{key}}",
        role="viewer",
        summary="Show the lane of one key",
        handler=queue_key,
        query=partition_views.KeyQuery,
        answer=partition_views.KeyView,
        problems=(404,),
    ),
]
