"""Drives the verbs of one partition by hand, for tests of the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qbull.config import QueueSettings
from qbull.core.ids import new_token
from qbull.core.record import Body, Ending, ExtendedBody, append_ending, pack, repack
from qbull.core.route import PARTITION_LANE, digest
from qbull.store.delivery import Delivery
from qbull.store.read import inspect
from qbull.store.read.inspect import Counts
from qbull.store.store import Store
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.partition import JobToRetry, NewJob


@dataclass
class PartitionDriver:
    store: Store
    settings: QueueSettings

    def __post_init__(self) -> None:
        self.partition = self.store.partition(self.settings, 0)

    @classmethod
    async def open(cls, store: Store, name: str = "q", **settings: Any) -> PartitionDriver:
        driver = cls(store, QueueSettings(name, **settings))
        await store.register(driver.settings, ["task"])
        return driver

    def job(
        self,
        id: str,
        key: str | None = None,
        *,
        when: int | str = 0,
        priority: int = 5,
        payload: bytes = b"{}",
        reports: int = 0,
    ) -> NewJob:
        lane = digest(key) if key is not None and self.settings.lane_limit else b""
        if self.settings.order == "partition":
            lane = PARTITION_LANE
        reports = reports or self.settings.reports
        _, _, ends = str(when).partition(" ")
        body = ExtendedBody("task", payload, key, expires=int(ends)) if ends else Body("task", payload, key)
        return NewJob(id, when, pack(body, priority=priority, lane=lane, reports=reports))

    async def enqueue(self, *ids: str, key: str | None = None, **options: Any) -> set[int]:
        return await self.partition.enqueue([self.job(id, key, **options) for id in ids])

    async def fetch(self, worker: str = "w1", count: int = 100) -> list[Delivery]:
        streams = await self.store.streams([self.partition])
        await self.store.ensure_groups(streams)
        return await self.store.fetch(streams, worker, count, None)

    async def settle(self, delivery: Delivery, at: int, word: str, delay_ms: int = 0) -> bool:
        """Answers whether it was taken; False where it was stale."""
        outcomes = PartitionOutcomes()
        job = delivery.job(at)
        id, record, position = job.id, job.record, job.position
        if word == "delay":
            outcomes.delay(position, id, repack(record, Body("task", b"{}", attempt=2)), delay_ms)
        elif word == "later":
            outcomes.postpone(position, id, record, delay_ms)
        elif word == "dead":
            outcomes.dead(position, id, record, append_ending(Ending(1, 1.0, "w1", error="broken")))
        elif word == "cancel":
            outcomes.cancelled(position, id, record, STOPPED)
        elif not delivery.lane:
            outcomes.done(delivery.level, delivery.entry, id, record + DONE)
        else:
            outcomes.done_in_train(position, id, record, DONE)
            if word == "give_way":
                outcomes.yield_train(delivery.position)
        return await self.partition.settle(outcomes) == []

    async def finish(self, delivery: Delivery) -> None:
        for at in range(delivery.job_count):
            assert await self.settle(delivery, at, "done")

    async def fail(self, *ids: str) -> None:
        """They run and become dead letters, in one batch; whatever else is ready goes back."""
        outcomes = PartitionOutcomes()
        for delivery in await self.fetch():
            job = delivery.job(0)
            if job.id.decode() in ids:
                ending = append_ending(Ending(1, 1.0, "w1", error="broken"))
                outcomes.dead(job.position, job.id, job.record, ending)
            else:
                await self.partition.release("w1", [delivery.position])
        assert outcomes.count == len(ids)
        assert await self.partition.settle(outcomes) == []

    async def complete_together(self) -> None:
        """All that is ready and in no train is done, in one batch."""
        outcomes = PartitionOutcomes()
        for delivery in await self.fetch():
            job = delivery.job(0)
            outcomes.done(delivery.level, delivery.entry, job.id, job.record + DONE)
        assert await self.partition.settle(outcomes) == []

    async def again(self, id: str) -> JobToRetry:
        found = await inspect.find(self.partition, id)
        assert found is not None
        return JobToRetry(id, found.position, found.again())

    async def fail_and_see(self, id: str) -> JobToRetry:
        await self.fail(id)
        return await self.again(id)

    async def cancel(self, *ids: str) -> list[str]:
        return await self.partition.cancel(STOPPED, ids)

    async def marked(self) -> set[str]:
        return {mark.id.decode() for mark in await self.partition.cancel_marks()}

    async def retry(self, *ids: str) -> list[str]:
        return await self.partition.retry(new_token(), [await self.again(id) for id in ids])

    async def remove(self, *ids: str) -> list[str]:
        return await self.partition.remove(new_token(), [(id, b"") for id in ids])

    async def run_all(self) -> list[str]:
        """Everything that can run, in the order in which it did."""
        ran = []
        while deliveries := await self.fetch():
            for delivery in deliveries:
                await self.finish(delivery)
                ran += ids_of(delivery)
        return ran

    async def state(self, id: str) -> str | None:
        found = await inspect.find(self.partition, id)
        return found.state if found is not None else None

    async def counts(self) -> Counts:
        return await inspect.count(self.partition)

    async def let_end_come(self, *ids: str) -> None:
        """Make jobs that expire do so now."""
        for id in ids:
            await self.store.server.call("ZADD", self.partition.base + "expiring", "XX", 1, id)

    async def let_time_pass(self, *ids: str) -> None:
        """Make delayed jobs due now."""
        for id in ids:
            await self.store.server.call("ZADD", self.partition.base + "delayed", "XX", 1, id)


def ids_of(delivery: Delivery) -> list[str]:
    return [job.id.decode() for job in delivery.jobs()]


DONE = append_ending(Ending(1, 1.0, "w1", b"1"))
STOPPED = append_ending(Ending(0, 0.0, "", error="not wanted"))
CRASHED = append_ending(Ending(1, 0.0, "w1", error="crashed"))
