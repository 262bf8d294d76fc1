"""Confirmed moves: a failover of one node of a cluster undoes no step that another node has built upon.

The old and the new partition of a lane may be on different nodes, and each node confirms only its own writes:

- A lane starts in its new partition because its old one has no jobs of it. A failover of the old node could
  bring back a job that had ended, and it would run behind later ones. So the old node's replicas confirm
  first that the lane is empty.
- A job leaves its old partition because it has arrived in the new one. A failover of the new node could lose
  it. So the new node's replicas confirm first that it has arrived.
- Workers no longer read a generation that has been drained. A failover could bring back a job there. So the
  replicas confirm first that it is empty.

On a single server both partitions are in one replication stream, and no failover can separate them.
"""

from __future__ import annotations

from typing import Any

from qbull.config import QueueSettings
from qbull.core.durability import Durability, profile_of
from qbull.errors import NotConfirmed, ServerAway
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.server import CommandArgument
from qbull.store.store import Store


class MoveConfirmer:
    """For one queue, with the durability of its app."""

    def __init__(self, store: Store, settings: QueueSettings, durability: Durability | None) -> None:
        self._server = store.server
        waits = durability is not None and profile_of(durability).waits_for_replicas
        self._confirmed = store.confirmed(durability) if waits and durability is not None else None
        self._is_ordered = settings.order is not None and settings.confirm_order

    @property
    def order(self) -> ConfirmedServer | None:
        """The server that confirms the end of lanes; None if that is not necessary."""
        return self._confirmed if self._is_ordered and self._server.same_slot_only else None

    async def script(self, verb: str, base: str, *arguments: CommandArgument) -> Any:
        """Run a verb and answer when all that it has written or seen is confirmed, if that is necessary.

        Raises ServerAway if it is not confirmed in time.
        """
        if self._confirmed is None or not self._server.same_slot_only:
            return await self._server.script(verb, base, *arguments)
        try:
            return await self._confirmed.script(verb, base, *arguments)
        except NotConfirmed as error:
            raise ServerAway(error.fact) from None
