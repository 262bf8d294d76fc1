"""Roam: every unfinished job of a state is met, in bounded steps."""

from __future__ import annotations

from partition_driver import PartitionDriver

from qbull.core.record import State
from qbull.store.read.unfinished import SCAN_END, scan_unfinished
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition


async def met(partition: Partition, state: State) -> list[str]:
    return [job.id async for step in scan_unfinished(partition, state) for job in step.jobs]


async def test_each_job_is_met_once_in_its_state(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue(*(f"w{n}" for n in range(700)))
    await driver.enqueue(*(f"l{n}" for n in range(5)), key="k")
    await driver.enqueue(*(f"d{n}" for n in range(300)), when=60_000)

    assert sorted(await met(driver.partition, "waiting")) == sorted(
        [*(f"w{n}" for n in range(700)), *(f"l{n}" for n in range(5))]
    )
    assert sorted(await met(driver.partition, "delayed")) == sorted(f"d{n}" for n in range(300))
    assert await met(driver.partition, "active") == []


async def test_no_step_looks_at_more_than_its_share(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue(*(f"w{n}" for n in range(400)))
    await driver.enqueue(*(f"v{n}" for n in range(400)))

    steps = [step async for step in scan_unfinished(driver.partition, "waiting")]

    assert len(steps) > 3 and max(step.looked for step in steps) < 700
    assert [step.cursor == SCAN_END for step in steps] == [False] * (len(steps) - 1) + [True]


async def test_what_a_worker_has_is_active_and_the_rest_of_its_train_waits(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a", "b", "c", key="k")
    [first] = await driver.fetch()
    await driver.finish(first)
    await driver.fetch()

    assert await met(driver.partition, "active") == ["b"]
    assert await met(driver.partition, "waiting") == ["c"]


async def test_the_place_is_where_it_was_seen(store: Store) -> None:
    """So that whoever removes it then removes nothing that has moved on."""
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a", "b", key="k")
    await driver.enqueue("later", when=60_000)

    for state in ("waiting", "delayed"):
        async for step in scan_unfinished(driver.partition, state):
            for job in step.jobs:
                assert job.position == await store.server.call(
                    "HGET", driver.partition.base + "index", job.id
                )


async def test_an_empty_partition_is_one_step(store: Store) -> None:
    driver = await PartitionDriver.open(store)

    assert [step async for step in scan_unfinished(driver.partition, "waiting")] == [([], 0, SCAN_END)]
