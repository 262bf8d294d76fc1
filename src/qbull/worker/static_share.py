"""The share of a worker with static sharing: its own partitions, and those of instances that are gone."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from qbull.core.layout import Generation
from qbull.core.sharing import Sharing, covered_partitions, static_partitions
from qbull.store.verbs.workers import RegisteredWorker, ServedQueue


class StaticShare:
    """For one queue of one worker.

    With a time for take-over, the partitions of an instance that has been gone that long go to workers that
    take over as well. Two workers may disagree for a moment about who is gone. Then both read a partition,
    which is harmless: lanes keep the order, and fences refuse stale outcomes.
    """

    def __init__(self, worker: str, queue: str, sharing: Sharing) -> None:
        self._worker = worker
        self._queue = queue
        self._sharing = sharing
        self._gone_since: dict[int, float] = {}

    def share(self, generation: Generation, members: Mapping[str, RegisteredWorker]) -> list[int]:
        """The partitions of a generation that this worker reads now."""
        s = self._sharing
        share = static_partitions(generation.partitions, s.instance, s.instances, s.process, s.processes)
        if s.take_over is not None:
            share = sorted({*share, *self._covered(generation.partitions, members)})
        return [generation.numbers[index] for index in share]

    def next_take_over(self) -> float:
        """Seconds until the next instance has been gone for long enough; infinite if none is about to."""
        if self._sharing.take_over is None:
            return math.inf
        now = time.monotonic()
        waits = [since + self._sharing.take_over - now for since in self._gone_since.values()]
        return min((wait for wait in waits if wait > 0), default=math.inf)

    def _covered(self, partitions: int, members: Mapping[str, RegisteredWorker]) -> list[int]:
        assert self._sharing.take_over is not None
        peers = {
            name: serving
            for name, member in members.items()
            if (serving := member.queues.get(self._queue)) is not None and self._is_peer(member, serving)
        }
        there = {serving.instance for serving in peers.values()} | {self._sharing.instance}
        now = time.monotonic()
        self._gone_since = {
            instance: self._gone_since.get(instance, now)
            for instance in range(self._sharing.instances)
            if instance not in there
        }
        gone = [
            instance for instance, since in self._gone_since.items() if now - since >= self._sharing.take_over
        ]
        readers = {name for name, serving in peers.items() if serving.take_over is not None}
        covered = covered_partitions(partitions, self._sharing.instances, gone, readers | {self._worker})
        return covered[self._worker]

    def _is_peer(self, member: RegisteredWorker, serving: ServedQueue) -> bool:
        return serving.instances == self._sharing.instances and not serving.leaving and not member.blocked
