"""The specifications of set_published and group_change: both may be sent twice."""

from __future__ import annotations

from partition_driver import PartitionDriver

from qbull.core.published import PublishedValue
from qbull.store.store import Store
from qbull.store.verbs.groups import change_group, read_group, read_group_names
from qbull.store.verbs.history import read_published_values, set_published_value


async def set_value(driver: PartitionDriver, job: str, content: bytes) -> str:
    return await set_published_value(driver.partition, None, job, PublishedValue("a", content))


async def test_a_value_is_set_in_any_state_and_the_last_one_counts(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")

    assert [await set_value(driver, "j", b"1"), await set_value(driver, "j", b"1")] == ["set", "set"]
    assert await driver.run_all() == ["j"]
    assert await read_published_values(driver.partition, "j", "a") == {"a": b"1"}
    assert await set_value(driver, "j", b"2") == "set"
    assert await read_published_values(driver.partition, "j", None) == {"a": b"2"}


async def test_no_value_of_an_unknown_or_moving_job_is_set(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")
    server, index = driver.partition.server, driver.partition.base + "index"
    place = await server.call("HGET", index, "j")

    assert await set_value(driver, "other", b"1") == "unknown"
    await server.call("HSET", index, "j", "m")
    assert await set_value(driver, "j", b"1") == "moving"
    await server.call("HSET", index, "j", place)

    assert await read_published_values(driver.partition, "j", None) == {}


async def test_a_group_knows_its_jobs_until_the_last_one_has_left(store: Store) -> None:
    await change_group(store, "g", {"a": "mail", "b": "other"})
    await change_group(store, "g", {"a": "mail"})
    assert await read_group(store, "g") == {"a": "mail", "b": "other"}
    assert await read_group_names(store) == ["g"]
    assert 0 < await store.server.call("TTL", store.names.group("g")) <= 30 * 86_400

    await change_group(store, "g", {"a": "", "unknown": ""})
    assert await read_group(store, "g") == {"b": "other"}
    await change_group(store, "g", {"b": ""})

    assert (await read_group(store, "g"), await read_group_names(store)) == ({}, [])
