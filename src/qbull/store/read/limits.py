"""Shared limits as people see them: their use, and the jobs of all queues that wait for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from qbull.config import QueueSettings
from qbull.core.health_facts import LimitFacts
from qbull.core.limit_status import LimitStatus
from qbull.core.limits import limit_in_need
from qbull.core.record import to_datetime
from qbull.errors import NotFound
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs import shared_limits
from qbull.store.verbs.workers import RegisteredWorker

MAX_SHOWN_KEYS = 10
"""Keys of a limit that are shown."""
MAX_LIMITED_NEEDS = 1000
"""Different limits and keys that are read of one partition."""


class LimitQueueing(msgspec.Struct):
    """The jobs that wait for one limit."""

    since_ms: int | None = None
    queues: Counter[str] = msgspec.field(default_factory=Counter)
    keys: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def jobs(self) -> int:
        return self.queues.total()


@idempotent
async def waiting_for_limits(store: Store, queues: Iterable[QueueSettings]) -> dict[str, LimitQueueing]:
    """The jobs of these queues that wait for shared limits, by the name of the limit.

    It costs one small call for each partition, in few round trips.
    """
    partitions = [partition for settings in queues for partition in await store.partitions(settings)]
    if not partitions:
        return {}
    calls = [(partition.base, MAX_LIMITED_NEEDS) for partition in partitions]
    found: dict[str, LimitQueueing] = {}
    for partition, reply in zip(
        partitions, await run_scripts(partitions[0].server, "limited_report", calls), strict=True
    ):
        for need, jobs, since_ms in zip(*(reply[at::3] for at in range(3)), strict=True):
            limited = limit_in_need(need.decode())
            if limited is None:
                continue
            name, key = limited
            one = found.setdefault(name, LimitQueueing())
            one.queues[partition.settings.name] += jobs
            one.keys[key] += jobs
            one.since_ms = since_ms if one.since_ms is None else min(one.since_ms, since_ms)
    return found


async def limit_statuses(
    store: Store, queues: Iterable[QueueSettings], names: Sequence[str] | None = None
) -> list[LimitStatus]:
    """These limits, or all of them, by name, with the jobs of these queues that wait for them.

    Raises NotFound if no worker has declared a limit that is asked for by name.
    """
    asked = names if names is not None else await shared_limits.names(store)
    if not asked:
        return []
    waiting = await waiting_for_limits(store, queues)
    found = []
    for name in asked:
        try:
            found.append(await _status(store, name, waiting.get(name, LimitQueueing())))
        except NotFound:
            if names is not None:
                raise
    return found


async def limit_facts(
    store: Store, queues: Iterable[QueueSettings], members: Mapping[str, RegisteredWorker]
) -> tuple[LimitFacts, ...]:
    """The facts about all limits from which core/limit_health.py finds problems."""
    names = await shared_limits.names(store)
    if not names:
        return ()
    waiting, found = await waiting_for_limits(store, queues), []
    for name in names:
        jobs = waiting.get(name, LimitQueueing())
        declared = {
            member.limits[name]
            for member in members.values()
            if name in member.limits and not all(serving.leaving for serving in member.queues.values())
        }
        is_spent = bool(jobs.keys) and await _is_spent(store, name, jobs.keys)
        found.append(LimitFacts(name, jobs.jobs, jobs.since_ms, is_spent, tuple(sorted(declared))))
    return tuple(found)


async def _is_spent(store: Store, name: str, keys: Counter[str]) -> bool:
    """Whether one of these keys has used up its budget of the day."""
    first, *others = [key for key, _ in keys.most_common(MAX_SHOWN_KEYS)]
    try:
        found = await shared_limits.usage(store, name, first, also=others)
    except NotFound:
        return False
    spent = max(found.of_key.spent, *(one.spent for one in found.status.keys), 0)
    return found.status.daily is not None and spent >= found.status.daily


async def _status(store: Store, name: str, waiting: LimitQueueing) -> LimitStatus:
    most_wanted = [key for key, _ in waiting.keys.most_common(MAX_SHOWN_KEYS) if key]
    status = (await shared_limits.usage(store, name, also=most_wanted, most=MAX_SHOWN_KEYS)).status
    keys = [replace(one, waiting=waiting.keys[one.key]) for one in status.keys]
    keys.sort(key=lambda one: (-one.spent, -one.used, -one.running, -one.waiting, one.key))
    return replace(
        status,
        waiting=waiting.jobs,
        since=None if waiting.since_ms is None else to_datetime(waiting.since_ms),
        queues=dict(sorted(waiting.queues.items())),
        keys=tuple(keys[:MAX_SHOWN_KEYS]),
    )
