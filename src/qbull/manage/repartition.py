"""Repartitioning: change the number of a queue's partitions while it is used. A Queue has these methods."""

from __future__ import annotations

from abc import ABC, abstractmethod

from qbull.config import QueueSettings
from qbull.core.layout import MAX_PARTITIONS
from qbull.errors import ConfigError
from qbull.produce.client import Client
from qbull.store.read.drain_status import Repartitioning, repartitioning_status
from qbull.store.verbs.alerts import ALERT_QUEUE as ALERTS
from qbull.store.verbs.layout import repartition


class Repartitionable(ABC):
    """What a queue can do about the number of its partitions."""

    settings: QueueSettings

    async def repartition(self, partitions: int) -> None:
        """Change the number of partitions. It is in force when this returns; the workers do what is left to do.

        Nothing is lost, the jobs of a key keep their order. Called again, and with other numbers, at any time.
        """
        if (
            not isinstance(partitions, int)
            or isinstance(partitions, bool)
            or not 1 <= partitions <= MAX_PARTITIONS
        ):
            raise ConfigError(
                f'queue "{self.settings.name}": partitions={partitions!r}: give a whole number from 1 to {MAX_PARTITIONS:,}'
            )
        if self.settings.name == ALERTS.name:
            raise ConfigError(f'queue "{ALERTS.name}": it is qbull\'s own and has one partition')
        client = self._client()
        await client.layout(self.settings)
        await repartition(client.store, self.settings, partitions)
        await client.layout(self.settings)

    async def repartitioning(self) -> Repartitioning | None:
        """How far a change of the number of partitions is; None where none is under way."""
        client = self._client()
        return await repartitioning_status(client.store, self.settings)

    @abstractmethod
    def _client(self) -> Client: ...
