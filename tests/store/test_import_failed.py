"""The specification of import_failed: dead letters from another system, each added once."""

from __future__ import annotations

import pytest
from partition_driver import PartitionDriver

from qbull.core.record import Ending, append_ending
from qbull.store.store import Store
from qbull.store.verbs.closed_partition import PartitionClosed
from qbull.store.verbs.failed_jobs import FailedJob, import_failed

ENDING = append_ending(Ending(3, 0.0, "qbull drain", error="no such address"))


def dead_letter(driver: PartitionDriver, id: str, key: str | None = None) -> FailedJob:
    return FailedJob(id, driver.job(id, key).record + ENDING, f"name of {id}", 60_000)


async def test_a_dead_letter_is_failed_and_can_be_retried(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")

    await import_failed(driver.partition, None, [dead_letter(driver, id, "k") for id in "ab"])
    states = [await driver.state(id) for id in "ab"]
    words = await driver.retry("a")

    assert states == ["failed", "failed"]
    assert words == ["retried"]
    assert await driver.state("a") == "waiting"


async def test_a_dead_letter_is_added_once_even_if_it_was_removed_since(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    letter = dead_letter(driver, "a")

    for _ in range(2):
        await import_failed(driver.partition, None, [letter, letter])
    counts = await driver.counts()
    await driver.partition.remove("token", [("a", b"")])
    await import_failed(driver.partition, None, [letter])

    assert counts.failed == 1
    assert (await driver.counts()).failed == 0


async def test_a_closed_partition_adds_no_dead_letter(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await store.server.call("HSET", driver.partition.base + "index", "\n", "closed 1 4")

    with pytest.raises(PartitionClosed) as closed:
        await import_failed(driver.partition, None, [dead_letter(driver, "a")])

    assert closed.value.successor.partitions == 4
    await store.server.call("HDEL", driver.partition.base + "index", "\n")
