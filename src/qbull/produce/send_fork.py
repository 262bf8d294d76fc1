"""Send a fork to the partition of its queue, even while the number of partitions changes."""

from __future__ import annotations

from collections.abc import Mapping

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.ids import new_token
from qbull.errors import NotConfirmed
from qbull.produce.router import JobRouter, PlacedJob
from qbull.store.verbs.closed_partition import PartitionClosed
from qbull.store.verbs.fork import ForkedJob, add_fork


async def send_fork(
    router: JobRouter,
    settings: QueueSettings,
    placed: PlacedJob,
    history: Mapping[bytes, bytes],
    durability: Durability | None,
) -> bool:
    """Add a job with its history. Returns whether it is new."""
    confirmed, token = router._confirmed(durability), new_token()
    while True:
        layout = router._layouts[settings.name]
        try:
            if layout.older and await router._in_older(settings, [placed], confirmed):
                return False
            partition = router.partition(settings, placed.number)
            added = await add_fork(partition, confirmed, ForkedJob(placed.job, history, token))
        except PartitionClosed as closed:
            await router._follow_successor(settings, closed.successor)
            placed = placed.moved_to(router._layouts[settings.name])
        except NotConfirmed as error:
            raise error.of(settings.name, placed.job.id) from None
        else:
            # An id that was made for this fork is there because the call was sent before.
            return added or not placed.has_custom_id
