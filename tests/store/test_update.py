"""The specification of update: a job that has not started gets other arguments, in one step."""

from __future__ import annotations

import msgspec
import pytest
from partition_driver import PartitionDriver

from qbull.core.record import body_of, crashes_of, created_ms_of
from qbull.store.read import inspect
from qbull.store.store import Store

TASK = msgspec.msgpack.encode("task")
NEW = b'{"n":2}'


async def update(driver: PartitionDriver, id: str, payload: bytes = NEW, token: str = "") -> str:
    return await driver.partition.update(token or f"t{id}", id, TASK, msgspec.msgpack.encode(payload))


async def payload_of(driver: PartitionDriver, id: str) -> bytes:
    found = await inspect.find(driver.partition, id)
    assert found is not None
    return body_of(found.record).payload


@pytest.mark.parametrize("payload", [b"{}", NEW, b"x" * 300, b"x" * 70_000], ids=["0", "1", "300", "70000"])
@pytest.mark.parametrize("when", [0, 60_000])
async def test_a_job_gets_other_arguments_of_any_size(store: Store, when: int, payload: bytes) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=when, priority=3, payload=b"y" * 500)
    before = await inspect.find(driver.partition, "a")

    assert await update(driver, "a", payload) == f"updated {'delayed' if when else 'waiting'}"

    after = await inspect.find(driver.partition, "a")
    assert before is not None and after is not None
    assert body_of(after.record).payload == payload
    assert (after.state, after.due_ms) == (before.state, before.due_ms)
    assert body_of(after.record).task == "task"
    assert crashes_of(after.record) == crashes_of(before.record)
    assert after.created_ms() == before.created_ms() != 0
    assert created_ms_of(after.record) in (0, before.created_ms())


async def test_jobs_of_a_lane_keep_their_order(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a", "b", "c", "d", key="k")

    assert [await update(driver, id) for id in ("a", "c")] == ["updated waiting"] * 2

    assert [await payload_of(driver, id) for id in ("a", "b", "c")] == [NEW, b"{}", NEW]
    assert await driver.run_all() == ["a", "b", "c", "d"]


async def test_a_retry_takes_other_arguments_and_keeps_its_attempt(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    (delivery,) = await driver.fetch()
    await driver.settle(delivery, 0, "delay", 60_000)

    assert await update(driver, "a1") == "updated delayed"

    found = await inspect.find(driver.partition, "a1")
    assert found is not None
    assert (body_of(found.record).attempt, body_of(found.record).payload) == (2, NEW)
    await driver.partition.promote_one("t", "a1")
    assert await driver.run_all() == ["a1", "a2"]


async def test_a_call_that_is_sent_twice_changes_nothing_more(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")

    first = await update(driver, "a", b"1", token="once")
    await update(driver, "a", b"2", token="later")
    second = await update(driver, "a", b"1", token="once")

    assert first == second == "updated waiting"
    assert await payload_of(driver, "a") == b"2"


async def test_another_state_is_the_answer(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("active", "behind", key="a")
    (delivery,) = await driver.fetch()
    await driver.enqueue("failed")
    await driver.fail("failed")

    words = [await update(driver, id) for id in ("active", "behind", "failed", "no")]

    assert words == ["active", "updated waiting", "failed", "unknown"]
    await driver.finish(delivery)


async def test_a_job_of_another_task_is_left_alone(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a", "b", key="k")
    await driver.enqueue("later", when=60_000)
    other = msgspec.msgpack.encode("other")

    words = [await driver.partition.update("t", id, other, b"\xc4\x00") for id in ("a", "b", "later")]

    assert words == ["other"] * 3
    assert [await payload_of(driver, id) for id in ("a", "b", "later")] == [b"{}"] * 3
