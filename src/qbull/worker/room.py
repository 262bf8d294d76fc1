"""Room: wait for a free slot for a parked job."""

from __future__ import annotations

from qbull.worker.limiter import Limiter
from qbull.worker.prefetch import PrefetchBuffer
from qbull.worker.slots import SlotRunner


async def wait_for_room(slots: SlotRunner, buffer: PrefetchBuffer, limiter: Limiter) -> int:
    """Wait for a free slot; returns how many there are."""
    free = slots.free_slots() - buffer.waiting
    while free <= 0:
        reserved = 0 if limiter.limited else 1
        buffer.reserved += reserved
        try:
            buffer.room.clear()
            await buffer.room.wait()
        finally:
            buffer.reserved -= reserved
        free = slots.free_slots() - buffer.waiting
        if free <= 0 and not buffer.returned_waiting:
            # The next slot that becomes free takes it before the prefetched jobs.
            return 1
    return free
