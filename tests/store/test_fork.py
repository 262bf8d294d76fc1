"""The specification of fork: a job and the history that it continues are added in one change, once."""

from __future__ import annotations

import pytest
from partition_driver import PartitionDriver

from qbull.core.durable import STEP_FIELD, StepRecord, encode_record
from qbull.core.record import Body, created_ms_of, pack
from qbull.store.store import Store
from qbull.store.verbs.closed_partition import PartitionClosed
from qbull.store.verbs.fork import ForkedJob, add_fork
from qbull.store.verbs.history import read_records
from qbull.store.verbs.partition import NewJob

HISTORY = {
    STEP_FIELD + b"%d" % number: encode_record(StepRecord(number, "step", b"", number, "r", b"1"))
    for number in (1, 2)
}


def fork(id: str, token: str = "t1") -> ForkedJob:
    return ForkedJob(NewJob(id, 0, pack(Body("send", b"{}"), priority=5, lane=b"")), HISTORY, token)


async def test_the_job_is_runnable_and_has_its_history(store: Store) -> None:
    driver = await PartitionDriver.open(store)

    assert await add_fork(driver.partition, None, fork("new"))

    assert [record.number for record in await read_records(driver.partition, "new")] == [1, 2]
    (delivery,) = await driver.fetch()
    job = delivery.job(0)
    assert job.id == b"new" and created_ms_of(job.record) > 0, "the worker reads the history"
    await driver.finish(delivery)


async def test_a_call_that_is_sent_twice_adds_one_job(store: Store) -> None:
    driver = await PartitionDriver.open(store)

    assert [await add_fork(driver.partition, None, fork("new")) for _ in range(2)] == [True, True]
    assert not await add_fork(driver.partition, None, fork("new", "t2"))

    (delivery,) = await driver.fetch()
    await driver.finish(delivery)
    assert await driver.fetch() == []


async def test_a_job_that_is_there_keeps_its_history(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("new")

    assert not await add_fork(driver.partition, None, fork("new"))

    assert await read_records(driver.partition, "new") == []
    (delivery,) = await driver.fetch()
    await driver.finish(delivery)


async def test_a_closed_partition_takes_no_fork(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await store.server.call("HSET", f"{driver.partition.base}index", "\n", "closed 1 4")

    with pytest.raises(PartitionClosed) as closed:
        await add_fork(driver.partition, None, fork("new"))
    assert (closed.value.successor.number, closed.value.successor.partitions) == (1, 4)
    assert await read_records(driver.partition, "new") == []
    await store.server.call("HDEL", f"{driver.partition.base}index", "\n")
