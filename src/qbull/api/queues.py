"""Queues: what there is and how much of it; pause and resume, settings, minutes, partitions, keys."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import msgspec
from msgspec import UNSET

from qbull.api.context import Site, now
from qbull.api.endpoint import Call, Endpoint, Nothing
from qbull.api.jobs import shown_job
from qbull.core.ids import check_key
from qbull.core.rate import Rate
from qbull.core.record import JobInfo, moment
from qbull.core.retry import Retry
from qbull.core.route import digest
from qbull.queue import Queue
from qbull.store.read import lane
from qbull.store.read.partition_report import survey
from qbull.views import access
from qbull.views import queues as wire
from qbull.views import render as plain
from qbull.views.jobs import Job
from qbull.views.shape import shaped

AT_ONCE = 8
"""Queues whose counts are read at a time."""


async def counts(site: Site) -> dict[str, dict[str, Any]]:
    """The counts of all queues by name."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(queue: Queue) -> dict[str, Any]:
        async with turn:
            return plain.stats(queue.name, await queue.stats())

    found = await asyncio.gather(*(one(queue) for queue in await site.queues()))
    return {made["name"]: made for made in found}


async def all_stats(call: Call[Nothing, Nothing]) -> wire.AllStats:
    found = await counts(call.site)
    return wire.AllStats(timestamp=now(), queues=shaped(found, dict[str, wire.Stats]))


async def queue_stats(call: Call[Nothing, Nothing]) -> wire.QueueStats:
    queue = await call.site.queue(call.path["queue"])
    made = plain.stats(queue.name, await queue.stats())
    return shaped({**made, "timestamp": now()}, wire.QueueStats)


async def queue_details(call: Call[Nothing, Nothing]) -> wire.Queue:
    queue = await call.site.queue(call.path["queue"])
    store, settings = call.site.store, queue.settings
    names = sorted({*queue.tasks, *await store.patiently(lambda: store.tasks(queue.name))})
    members = await store.patiently(store.workers)
    serving = [who.queues[queue.name] for who in members.values() if queue.name in who.queues]
    stats = plain.stats(queue.name, await queue.stats())
    return wire.Queue(
        timestamp=now(),
        name=queue.name,
        stats=shaped(stats, wire.Stats),
        partitions=(await call.site.app.client().layout(settings)).partitions,
        order=settings.order,
        on_failed=settings.on_failed,
        lane=None if settings.lane is None else msgspec.to_builtins(settings.lane),
        timeout=settings.timeout,
        keep=msgspec.to_builtins(settings.keep),
        workers=len(serving),
        slots=sum(one.concurrency for one in serving),
        tasks=[wire.Task(name=name, arguments=_arguments(queue, name)) for name in names],
        declared_here=queue.name in call.site.app.queues,
    )


def _arguments(queue: Queue, task: str) -> dict[str, Any] | None:
    spec = queue.tasks.get(task)
    return None if spec is None else spec.signature.schema()


async def pause(call: Call[Nothing, Nothing]) -> access.Done:
    queue = await call.site.queue(call.path["queue"])
    await queue.pause(by=call.caller.name)
    return access.Done(message=f'queue "{queue.name}": paused', timestamp=now())


async def resume(call: Call[Nothing, Nothing]) -> access.Done:
    queue = await call.site.queue(call.path["queue"])
    await queue.resume(by=call.caller.name)
    return access.Done(message=f'queue "{queue.name}": goes on', timestamp=now())


async def settings(call: Call[Any, Any]) -> wire.Settings:
    queue = await call.site.queue(call.path["queue"])
    made = plain.live(await queue.live(), await queue.changes())
    return shaped(msgspec.to_builtins({"timestamp": now(), "queue": queue.name, **made}), wire.Settings)


async def change_settings(call: Call[Nothing, wire.NewSettings]) -> wire.Settings:
    queue, asked = await call.site.queue(call.path["queue"]), call.body
    values: dict[str, Any] = {}
    if asked.concurrency is not UNSET:
        values["concurrency"] = asked.concurrency
    if asked.max_active is not UNSET:
        values["max_active"] = asked.max_active
    if asked.rate is not UNSET:
        values["rate"] = None if asked.rate is None else Rate(asked.rate.count, asked.rate.per)
    if isinstance(asked.retry, wire.Retry):
        values["retry"] = _retry(asked.retry)
    call.notes.update(msgspec.to_builtins(values))
    await queue.configure(**values, by=call.caller.name)
    return await settings(call)


def _retry(asked: wire.Retry) -> Retry:
    given: dict[str, Any] = {
        name: value for name in asked.__struct_fields__ if (value := getattr(asked, name)) is not None
    }
    if "delays" in given:
        given["delays"] = tuple(given["delays"])
    return Retry(**given)


async def reset_settings(call: Call[wire.ResetQuery, Nothing]) -> wire.Settings:
    queue, one = await call.site.queue(call.path["queue"]), call.query.setting
    call.notes["setting"] = one or "all"
    await queue.reset(*([one] if one is not None else []), by=call.caller.name)
    return await settings(call)


async def queue_minutes(call: Call[wire.MinutesQuery, Nothing]) -> wire.Minutes:
    queue = await call.site.queue(call.path["queue"])
    partitions = await call.site.app.client().partitions(queue.settings)
    found = await call.site.minutes.last(queue.name, partitions, call.query.minutes)
    rows = [{**one._asdict(), "at": plain.moment(moment(one.at_ms))} for one in found]
    for row in rows:
        del row["at_ms"]
    return wire.Minutes(timestamp=now(), queue=queue.name, minutes=shaped(rows, list[wire.Minute]))


async def queue_partitions(call: Call[Nothing, Any]) -> wire.Partitions:
    queue, store = await call.site.queue(call.path["queue"]), call.site.store
    found = await store.patiently(lambda: survey(store, queue.settings))
    left = await queue.repartitioning()
    made = {
        "timestamp": now(),
        **plain.survey(found),
        "repartitioning": None if left is None else asdict(left),
    }
    return shaped(msgspec.to_builtins(made), wire.Partitions)


async def repartition(call: Call[Nothing, wire.NewPartitions]) -> wire.Partitions:
    queue = await call.site.queue(call.path["queue"])
    call.notes["partitions"] = call.body.partitions
    await queue.repartition(call.body.partitions)
    return await queue_partitions(call)


async def queue_key(call: Call[wire.KeyQuery, Nothing]) -> wire.Key:
    queue, key = await call.site.queue(call.path["queue"]), check_key(call.path["key"])
    client = call.site.app.client()
    layout = await client.layout(queue.settings)
    partition = client.partition(queue.settings, layout.home(digest(key)))
    line = await client.store.patiently(lambda: lane.look(partition, digest(key), call.query.limit))

    async def shown(id: str) -> Job | None:
        info: JobInfo | None = await queue.job(id).info()
        return None if info is None else shown_job(call, info)

    waiting = [one for id in line.first if (one := await shown(id)) is not None]
    return wire.Key(
        timestamp=now(),
        queue=queue.name,
        key=key,
        partition=partition.shown,
        holder=None if line.holder is None else await shown(line.holder),
        halted=line.halted,
        waiting=line.waiting,
        jobs=waiting,
    )


ONE = "/api/queues/{queue}"

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/stats",
        role="viewer",
        summary="The counts of all queues",
        handler=all_stats,
        answer=wire.AllStats,
    ),
    Endpoint(
        method="GET",
        path=f"{ONE}/stats",
        role="viewer",
        summary="The counts of one queue",
        handler=queue_stats,
        answer=wire.QueueStats,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=ONE,
        role="viewer",
        summary="What a queue is: how it was declared, who serves it, its tasks and their arguments",
        handler=queue_details,
        answer=wire.Queue,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path=f"{ONE}/pause",
        role="admin",
        summary="Let nothing more begin",
        handler=pause,
        answer=access.Done,
        problems=(404,),
        audit="pause queue",
    ),
    Endpoint(
        method="POST",
        path=f"{ONE}/resume",
        role="admin",
        summary="Go on after a pause",
        handler=resume,
        answer=access.Done,
        problems=(404,),
        audit="resume queue",
    ),
    Endpoint(
        method="GET",
        path=f"{ONE}/settings",
        role="viewer",
        summary="What is in force, and who has changed what",
        handler=settings,
        answer=wire.Settings,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=f"{ONE}/settings",
        role="admin",
        summary="Change settings for all workers, until they are reset",
        handler=change_settings,
        body=wire.NewSettings,
        rule={"minProperties": 1},
        answer=wire.Settings,
        problems=(404,),
        audit="change settings",
    ),
    Endpoint(
        method="DELETE",
        path=f"{ONE}/settings",
        role="admin",
        summary="Back to what the code says",
        handler=reset_settings,
        query=wire.ResetQuery,
        answer=wire.Settings,
        problems=(404,),
        audit="reset settings",
    ),
    Endpoint(
        method="GET",
        path=f"{ONE}/metrics",
        role="viewer",
        summary="What was counted in each of the last minutes",
        handler=queue_minutes,
        query=wire.MinutesQuery,
        answer=wire.Minutes,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{ONE}/partitions",
        role="viewer",
        summary="Who reads which partition, and what waits there",
        handler=queue_partitions,
        answer=wire.Partitions,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=f"{ONE}/partitions",
        role="admin",
        summary="Change the number of partitions while the queue is used; it is in force at once",
        handler=repartition,
        body=wire.NewPartitions,
        answer=wire.Partitions,
        problems=(404, 409),
        audit="repartition",
    ),
    Endpoint(
        method="GET",
        path=f"{ONE}/keys/{{key}}",
        role="viewer",
        summary="The line behind one key",
        handler=queue_key,
        query=wire.KeyQuery,
        answer=wire.Key,
        problems=(404,),
    ),
]
