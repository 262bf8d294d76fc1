"""Changing a queue's layout: agree on another number of partitions, close those there are, put the new ones
in force.

The partitions are on different slots, so this cannot be one step. It is several, and each of them may be
taken by anybody, by several at once, and again: by the command that began it, or by any producer that comes
to a closed partition. Nobody waits for somebody who may be dead.

1. The layout says which number is coming. One change at a time can be agreed on.
2. Every partition is closed, and says from then on where its keys go.
3. When all are closed, the layout changes. Only now does anybody put something into the new partitions: whatever the
   old ones have of a key came before it.
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
"""Generations that are worked off at a time: whoever looks for something looks there too."""
SWITCH_HEAD_START_SECONDS = 0.02
"""Seconds within which whoever has begun a change should have ended it; then others help."""


@idempotent
async def repartition(store: Store, settings: QueueSettings, partitions: int) -> Layout:
    """Change the number of partitions; the layout that is in force then."""
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
            f'queue "{settings.name}": {MAX_DRAINING_GENERATIONS} earlier changes are still being worked off; '
            f'see "qbull repartition {settings.name} {layout.partitions}"'
        )
    there = sum(generation.partitions for generation in layout.generations)
    if there + partitions > MAX_ALL_PARTITIONS:
        raise Conflict(
            f'queue "{settings.name}": {there:,} partitions still have jobs, and {partitions:,} more would be over '
            f"{MAX_ALL_PARTITIONS:,}; wait until earlier ones are worked off and their finished jobs gone, or clean these"
        )


@idempotent
async def follow_successor(store: Store, settings: QueueSettings, successor: Generation) -> Layout:
    """The layout for somebody who was told by a closed partition that its keys are in another generation now."""
    while True:
        layout = await store.layout(settings)
        if layout.generation >= successor.number:
            return layout
        if layout.coming is None:
            # A failover has lost what was agreed on; the closed partitions still know it.
            await change_layout(store, settings, layout, layout.begins(successor.partitions))
        else:
            await finish_switch(store, settings, layout)


async def finish_switch(store: Store, settings: QueueSettings, layout: Layout) -> None:
    """End a change that somebody has begun, if he does not do it himself."""
    await asyncio.sleep(jittered(SWITCH_HEAD_START_SECONDS / 2, 1.0))
    if await store.layout(settings) == layout:
        await _switch(store, settings, layout)


async def change_layout(store: Store, settings: QueueSettings, was: Layout, now: Layout) -> bool:
    """Another layout, if it is still the one it was; everybody is told."""
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
            # lost in a failover, and agreed on otherwise; jobs may be there
            await change_layout(store, settings, layout, layout.begins(successor.partitions))
            return
    await change_layout(store, settings, layout, layout.switched())


async def close_partition(partition: Partition, successor: Generation) -> Generation:
    """Let nothing more in; where its keys go: as it said before, where it was closed already."""
    mark = await partition.server.script("move_close", partition.base, successor.number, successor.partitions)
    return successor_in(mark)


def _packed(layout: Layout) -> bytes:
    """As it lies on the server: nothing where the number was never changed."""
    return b"" if layout == Layout(partitions=layout.partitions) else msgspec.json.encode(layout)
