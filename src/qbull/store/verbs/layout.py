"""Layout: change the number of a queue's partitions: agree on it, close the old ones, open the new ones.

The partitions are on different slots, so this cannot be one step. It takes several, and anyone may take each
of them, concurrently and repeatedly: the command that started the change, or any producer that meets a closed
partition. Nobody waits for a process that may be dead.

1. The layout announces the coming number. Only one change can be agreed on at a time.
2. Every partition is closed. From then on it tells where its keys go.
3. When all are closed, the layout changes. Only now are jobs added to the new partitions: all jobs of a key
   in the old ones came earlier.
"""

from __future__ import annotations

import asyncio

import msgspec

from qbull.config import QueueSettings
from qbull.core.backoff import jittered
from qbull.core.layout import MAX_ALL_PARTITIONS, Generation, Layout
from qbull.errors import Conflict
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.closed_partition import successor_in
from qbull.store.verbs.partition import Partition

MAX_DRAINING_GENERATIONS = 8
"""Maximum number of generations that drain at a time: a search for a job has to look in all of them."""
SWITCH_HEAD_START_SECONDS = 0.02
"""Seconds within which the process that started a change should finish it. Then others help."""


@idempotent
async def repartition(store: Store, settings: QueueSettings, partitions: int) -> Layout:
    """Change the number of partitions. Returns the layout that is in force then."""
    while True:
        layout = await store.layout(settings)
        if layout.coming is not None:
            await _switch(store, settings, layout)
        elif layout.partitions == partitions:
            return layout
        else:
            _refuse_too_many(settings, layout, partitions)
            await change_layout(store, settings, layout, layout.begins(partitions))


def _refuse_too_many(settings: QueueSettings, layout: Layout, partitions: int) -> None:
    if len(layout.draining) >= MAX_DRAINING_GENERATIONS:
        raise Conflict(
            f'queue "{settings.name}": {MAX_DRAINING_GENERATIONS} earlier changes '
            "are still being worked off; "
            f'see "qbull repartition {settings.name} {layout.partitions}"'
        )
    there = sum(generation.partitions for generation in layout.generations)
    if there + partitions > MAX_ALL_PARTITIONS:
        raise Conflict(
            f'queue "{settings.name}": {there:,} partitions still have jobs, '
            f"and {partitions:,} more would be over {MAX_ALL_PARTITIONS:,}; "
            "wait until earlier ones are worked off and their finished jobs gone, or clean these"
        )


@idempotent
async def follow_successor(store: Store, settings: QueueSettings, successor: Generation) -> Layout:
    """The layout for a producer that a closed partition has sent to another generation."""
    while True:
        layout = await store.layout(settings)
        if layout.generation >= successor.number:
            return layout
        if layout.coming is None:
            # A failover has lost the agreed change; the closed partitions still know it.
            await change_layout(store, settings, layout, layout.begins(successor.partitions))
        else:
            await finish_switch(store, settings, layout)


async def finish_switch(store: Store, settings: QueueSettings, layout: Layout) -> None:
    """Finish a change that another process has started, if it does not do so itself."""
    await asyncio.sleep(jittered(SWITCH_HEAD_START_SECONDS / 2, 1.0))
    if await store.layout(settings) == layout:
        await _switch(store, settings, layout)


async def change_layout(store: Store, settings: QueueSettings, was: Layout, now: Layout) -> bool:
    """Change the layout unless it has changed meanwhile, and wake all workers up."""
    base = store.names.queue(settings.name)
    return bool(await store.server.script("move_layout", base, _packed(was), _packed(now)))


async def _switch(store: Store, settings: QueueSettings, layout: Layout) -> None:
    assert layout.coming is not None
    coming = Generation(layout.generation + 1, layout.coming)
    bases = [store.names.partition(settings.name, number) for number in layout.current.numbers]
    calls = [(base, coming.number, coming.partitions) for base in bases]
    for mark in await run_scripts(store.server, "move_close", calls):
        successor = successor_in(mark)
        if successor.partitions != coming.partitions:
            # lost in a failover, and agreed on differently since; there may be jobs
            await change_layout(store, settings, layout, layout.begins(successor.partitions))
            return
    await change_layout(store, settings, layout, layout.switched())


async def close_partition(partition: Partition, successor: Generation) -> Generation:
    """Close a partition. Returns the generation of its keys: the earlier one, if it was closed before."""
    mark = await partition.server.script("move_close", partition.base, successor.number, successor.partitions)
    return successor_in(mark)


def _packed(layout: Layout) -> bytes:
    """The layout as it is stored; empty if the number never changed."""
    return b"" if layout == Layout(partitions=layout.partitions) else msgspec.json.encode(layout)
