"""Repartitioning: change the number of a queue's partitions while it is in use.

Methods of `Queue` call this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbull.core.layout import MAX_PARTITIONS
from qbull.errors import ConfigError
from qbull.store.audit import audited, note, of_queue
from qbull.store.read.drain_status import Repartitioning, repartitioning_status
from qbull.store.verbs import layout
from qbull.store.verbs.alerts import ALERT_QUEUE

if TYPE_CHECKING:
    from qbull.queue import Queue


@audited("repartition", of_queue)
async def repartition(queue: Queue, partitions: int) -> None:
    """Change the number of partitions of a queue."""
    is_count = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not is_count or not 1 <= partitions <= MAX_PARTITIONS:
        raise ConfigError(
            f'queue "{queue.name}": partitions={partitions!r}: '
            f"give a whole number from 1 to {MAX_PARTITIONS:,}"
        )
    if queue.name == ALERT_QUEUE.name:
        raise ConfigError(f'queue "{queue.name}": it is qbull\'s own and has one partition')
    client = queue.app._client()
    before = await client.router.layout(queue.settings)
    await layout.repartition(client.store, queue.settings, partitions)
    note(before=before.partitions, after=partitions)
    await client.router.layout(queue.settings)


async def status(queue: Queue) -> Repartitioning | None:
    """The progress of a change of the number of partitions; None if there is none under way."""
    client = queue.app._client()
    return await repartitioning_status(client.store, queue.settings)
