"""Who beats takes back what dead workers held; but not before others had a chance to be heard."""

from __future__ import annotations

from desk import Desk

from conftest import eventually
from qbull.config import QueueSettings
from qbull.store.roster import Member, Serving
from qbull.store.store import Store
from qbull.worker.beat import Beat
from qbull.worker.outage import Outage


async def test_a_newcomer_lets_others_be_heard_before_it_calls_them_dead(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    await desk.fetch("old")
    await silent(store, "old")
    beat = Beat(store, [desk.settings], lambda: ["new"], 3.0, Outage())

    await beat.tick()

    assert (await desk.counts()).active == 1
    assert await store.remembered() == {"old", "new"}

    async def buried() -> bool:
        await beat.tick()
        return await store.remembered() == {"new"}

    await eventually(buried)
    assert (await desk.counts()).waiting == 1


async def test_what_a_silent_worker_held_of_other_queues_is_taken_back_too(store: Store) -> None:
    """A pod that serves one queue is the first to notice; nobody else would look before the next sweep."""
    desk = await Desk.open(store)
    await desk.enqueue("a")
    await desk.fetch("old")
    await store.enroll("old", Member("h", 1, "p", {"q": Serving(1)}), 0.01)
    await silent(store, "old")
    beat = Beat(store, [QueueSettings("another")], lambda: ["new"], 0.5, Outage())

    async def buried() -> bool:
        await beat.tick()
        return await store.remembered() == {"new"}

    await eventually(buried)
    assert (await desk.counts()).waiting == 1


async def silent(store: Store, worker: str) -> None:
    """It has beaten, and its time is over."""
    await store.beat(0.01, [worker])

    async def over() -> bool:
        return await store.workers() == {}

    await eventually(over)
