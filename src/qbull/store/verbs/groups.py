"""Groups: jobs of any queues under one name. The verb is lua/group_change.lua."""

from __future__ import annotations

from collections.abc import Mapping

from qbull.store.retry import idempotent
from qbull.store.store import Store

GROUP_TTL_SECONDS = 30 * 86_400
"""How long a group is kept after its last change."""


@idempotent
async def change_group(store: Store, group: str, jobs: Mapping[str, str]) -> None:
    """Add jobs to a group, or take out those whose queue is ''.

    Args:
        store: The store.
        group: The name of the group.
        jobs: The queue of each job, by its id.
    """
    flat = [part for pair in jobs.items() for part in pair]
    if flat:
        await store.server.script("group_change", store.names.app, group, GROUP_TTL_SECONDS, *flat)


@idempotent
async def read_group(store: Store, group: str) -> dict[str, str]:
    """The queue of each job of a group, by its id; empty for an unknown group."""
    flat = await store.server.call("HGETALL", store.names.group(group))
    return {id.decode(): queue.decode() for id, queue in zip(flat[::2], flat[1::2], strict=True)}


@idempotent
async def read_group_names(store: Store) -> list[str]:
    """The names of all groups, also of those that have expired since."""
    return sorted(name.decode() for name in await store.server.call("SMEMBERS", store.names.groups))
