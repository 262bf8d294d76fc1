"""A queue of two partitions, and flows in it."""

from __future__ import annotations

from typing import Any

from partition_driver import PartitionDriver

from qbull.core.flow import (
    HAS_DEPENDENCIES_FLAG,
    HAS_DEPENDENTS_FLAG,
    Dependency,
    DependencyFailureMode,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    with_flow_flags,
)
from qbull.core.ids import new_id
from qbull.core.record import ExtendedBody, pack
from qbull.store.store import Store
from qbull.store.verbs.flows import FlowStore

FLOW = "f10w"


class FlowDriver:
    """A queue of two partitions whose jobs have their ids from these, and flows of it."""

    def __init__(self, store: Store, driver: PartitionDriver) -> None:
        self.store = store
        self.settings = driver.settings
        self.flows = FlowStore(store)

    @classmethod
    async def open(cls, store: Store, **settings: Any) -> FlowDriver:
        return cls(store, await PartitionDriver.open(store, partitions=2, **settings))

    def driver(self, number: int) -> PartitionDriver:
        driver = PartitionDriver(self.store, self.settings)
        driver.partition = self.store.partition(self.settings, number)
        return driver

    def seed(
        self,
        id: str,
        *,
        tells: list[Dependent] | None = None,
        awaits: list[Dependency] | None = None,
        mode: DependencyFailureMode = "stop",
        flow: str = FLOW,
    ) -> FlowJobSeed:
        body = ExtendedBody("task", b"{}", expires=3_600_000, flow=flow, tells=tells or [])
        flags = (HAS_DEPENDENTS_FLAG if tells else 0) | (HAS_DEPENDENCIES_FLAG if awaits else 0)
        record = with_flow_flags(pack(body, priority=5, lane=b""), flags)
        return FlowJobSeed("q", id, None, False, 0, record, mode, awaits or [])

    def pair(self, mode: DependencyFailureMode = "stop") -> tuple[FlowPlan, str, str]:
        """One in partition 1 that waits for one in partition 0."""
        child, parent = new_id(0), new_id(1)
        seeds = [
            self.seed(parent, awaits=[Dependency("q", child, "task")], mode=mode),
            self.seed(child, tells=[Dependent("q", parent, None, 0)]),
        ]
        return FlowPlan(FLOW, seeds), child, parent

    async def notes(self, number: int) -> int:
        name = self.store.partition(self.settings, number).base + "outgoing"
        length: int = await self.store.server.call("XLEN", name)
        return length

    async def state(self, number: int, id: str) -> str | None:
        return await self.driver(number).state(id)

    async def ship(self) -> None:
        for number in (0, 1):
            await self.flows.dispatch(self.store.partition(self.settings, number))
