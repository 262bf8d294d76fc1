"""The specification of history_write: records are kept while the delivery counts, and deleted with the job."""

from __future__ import annotations

from partition_driver import CRASHED, PartitionDriver

from qbull.core.calls import HistoryChange
from qbull.core.durable import StepRecord, encode_record
from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.store.verbs.history import HistoryWrite, read_job_data, read_records, write_history


def record(number: int, name: str = "step") -> tuple[int, bytes]:
    return number, encode_record(StepRecord(number, name, b"", 0, "r", b"1"))


def of(
    delivery: Delivery, *records: tuple[int, bytes], at: int = 0, delete: tuple[int, int] = (1, 0)
) -> HistoryWrite:
    job = delivery.job(at)
    return HistoryWrite(job.id, job.position, HistoryChange(records, *delete))


async def write(driver: PartitionDriver, *writes: HistoryWrite, worker: str = "w1") -> list[bool]:
    return await write_history(driver.partition, None, worker, writes)


async def numbers(driver: PartitionDriver, id: str) -> list[int]:
    return [found.number for found in await read_records(driver.partition, id)]


async def test_records_are_kept_in_order(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b")
    first, second = await driver.fetch()

    assert await write(driver, of(first, record(2), record(1)), of(second, record(1))) == [True, True]
    assert await write(driver, of(first, record(3))) == [True]

    assert await numbers(driver, "a") == [1, 2, 3]
    assert await numbers(driver, "b") == [1]
    for delivery in (first, second):
        await driver.finish(delivery)


async def test_a_call_that_is_sent_twice_changes_nothing_more(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    await write(driver, of(delivery, record(1), record(2), record(3)))

    for _ in range(2):
        assert await write(driver, of(delivery, record(1, "kept"), delete=(2, 3))) == [True]
        assert [found.name for found in await read_records(driver.partition, "a")] == ["kept"]

    await driver.finish(delivery)


async def test_a_worker_that_lost_its_delivery_records_nothing(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (old,) = await driver.fetch("zombie")
    assert await write(driver, of(old, record(1)), worker="zombie") == [True]
    await driver.partition.reclaim("zombie", CRASHED, [])

    assert await write(driver, of(old, record(2)), worker="zombie") == [False]
    (new,) = await driver.fetch("other")
    assert await write(driver, of(old, record(2), delete=(1, 1)), worker="zombie") == [False]

    assert await numbers(driver, "a") == [1]
    assert await write(driver, of(new, record(2)), worker="other") == [True]
    await driver.finish(new)


async def test_of_two_workers_with_the_same_entry_only_the_one_that_the_server_knows_records(
    store: Store,
) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (old,) = await driver.fetch("old")
    # A failover has lost this delivery, and the new primary has handed the entry to another worker.
    stream = f"{driver.partition.base}ready:{old.level}"
    await store.server.call("XCLAIM", stream, "workers", "new", 0, old.entry, "JUSTID")

    assert await write(driver, of(old, record(1)), worker="old") == [False]
    assert await write(driver, of(old, record(1)), worker="new") == [True]
    await driver.finish(old)


async def test_an_entry_with_the_id_of_another_job_records_nothing(store: Store) -> None:
    """Another program may write into the stream, and repeat an id."""
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    stream = f"{driver.partition.base}ready:{delivery.level}"
    ((_, fields),) = await store.server.call("XRANGE", stream, delivery.entry, delivery.entry)
    await store.server.call("XADD", stream, "*", *fields)
    (repeated,) = await driver.fetch("other")

    assert await write(driver, of(repeated, record(1)), worker="other") == [False]
    assert await write(driver, of(delivery, record(1))) == [True]

    await store.server.call("XACK", stream, "workers", repeated.entry)
    await store.server.call("XDEL", stream, repeated.entry)
    await driver.finish(delivery)


async def test_a_settled_job_records_nothing(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    await driver.settle(delivery, 0, "delay", 0)

    assert await write(driver, of(delivery, record(1))) == [False]

    assert await read_job_data(driver.partition, "a") == {}
    await driver.run_all()


async def test_a_job_of_a_train_records_until_it_is_settled(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()

    # The second job may run while the outcome of the first is on its way.
    assert await write(driver, of(train, record(1), at=0), of(train, record(1), at=1)) == [True, True]
    assert await driver.settle(train, 0, "done")
    assert await write(driver, of(train, record(2), at=0), of(train, record(2), at=1)) == [False, True]

    assert (await numbers(driver, "a1"), await numbers(driver, "a2")) == ([1], [1, 2])
    assert await driver.settle(train, 1, "done")


async def test_a_history_survives_attempts_and_goes_with_the_job(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    await write(driver, of(delivery, record(1)))
    await driver.settle(delivery, 0, "delay", 0)
    (again,) = await driver.fetch()
    await driver.settle(again, 0, "dead")
    assert await numbers(driver, "a") == [1]

    await driver.retry("a")
    assert await numbers(driver, "a") == [1]
    await driver.remove("a")

    assert await store.server.call("EXISTS", driver.partition.base + "job:a") == 0
