"""Verbs of a partition whose order is confirmed: they answer once all that came before is safe."""

from __future__ import annotations

from collections.abc import Sequence

from qbull.errors import NotConfirmed, ServerAway
from qbull.store.confirm import ConfirmedServer
from qbull.store.retry import idempotent
from qbull.store.verbs.outcomes import DeliveryState, PartitionOutcomes
from qbull.store.verbs.partition import Partition


@idempotent
async def settle_confirmed(
    partition: Partition, confirmed: ConfirmedServer, outcomes: PartitionOutcomes
) -> tuple[list[bytes], bool]:
    """Like `Partition.settle`. Also returns whether the outcomes were confirmed within a moment."""
    return await confirmed.try_script("settle", partition.base, *partition.settle_arguments(outcomes))


@idempotent
async def confirm_deliveries(
    partition: Partition, confirmed: ConfirmedServer, worker: str, states: Sequence[DeliveryState]
) -> list[bytes]:
    """Wait until all that led to these deliveries is confirmed. Returns a word for each (lua/holds.lua).

    Raises ServerAway if it is not confirmed in time.
    """
    flat = [argument for state in states for argument in state]
    server = confirmed if confirmed.waits else partition.server
    try:
        words: list[bytes] = await server.script("holds", partition.base, worker, *flat)
    except NotConfirmed as error:
        raise ServerAway(error.fact) from None
    return words
