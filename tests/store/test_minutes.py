"""The specification of minutes: each is counted once, also while the clock goes on and between servers whose clocks differ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from partition_driver import PartitionDriver

from qbull.store import clock
from qbull.store.read import minutes as module
from qbull.store.read.minutes import MINUTE_MS, MinuteCache, last_minutes
from qbull.store.store import Store


@pytest_asyncio.fixture(autouse=True)
async def movable_clock(store: Store) -> AsyncIterator[None]:
    store.server.address = replace(store.server.address, test_clock=True)
    yield
    await store.server.call("DEL", clock.CLOCK_SHIFT_KEY)


class PassingMinutes:
    """Lets a minute pass behind each call to the server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ask = module.run_scripts
        self.calls = 0

    async def __call__(self, *call: Any) -> list[Any]:
        answers = await self._ask(*call)
        self.calls += 1
        await clock.advance_clock(self._store, MINUTE_MS)
        return answers


async def a_job_each_minute(driver: PartitionDriver, many: int) -> None:
    for n in range(many):
        await driver.enqueue(f"job-{n}")
        await clock.advance_clock(driver.store, MINUTE_MS)


async def test_a_minute_that_ends_between_two_calls_is_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await PartitionDriver.open(store)
    await a_job_each_minute(driver, 8)
    monkeypatch.setattr(module, "MINUTES_BATCH_SIZE", 3)
    monkeypatch.setattr(module, "run_scripts", PassingMinutes(store))

    found = await last_minutes([driver.partition], 9)

    assert [minute.enqueued for minute in found] == [1] * 8 + [0]


async def test_a_minute_that_ends_between_two_looks_does_no_harm(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await PartitionDriver.open(store)
    await a_job_each_minute(driver, 8)
    memory = MinuteCache()
    turning = PassingMinutes(store)
    monkeypatch.setattr(module, "run_scripts", turning)

    first = await memory.last("q", [driver.partition], 20)
    again = await memory.last("q", [driver.partition], 20)

    assert [len(first), len(again)] == [20, 20]
    assert [sum(minute.enqueued for minute in found) for found in (first, again)] == [8, 8]
    assert turning.calls == 3  # the second time only the newest were read


async def test_servers_whose_clocks_differ_count_a_minute_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await PartitionDriver.open(store, partitions=2)
    other = store.partition(driver.settings, 1)
    await a_job_each_minute(driver, 8)
    ask = module.run_scripts

    async def one_is_behind(server: Any, verb: str, calls: list[tuple[Any, ...]]) -> list[Any]:
        ahead = await ask(server, verb, calls[:1])
        await clock.advance_clock(store, -MINUTE_MS)
        behind = await ask(server, verb, calls[1:])
        await clock.advance_clock(store, MINUTE_MS)
        return ahead + behind

    monkeypatch.setattr(module, "MINUTES_BATCH_SIZE", 3)
    monkeypatch.setattr(module, "run_scripts", one_is_behind)

    for order in ([driver.partition, other], [other, driver.partition]):
        assert _counted(await last_minutes(order, 9)) == [1] * 8 + [0]


def _counted(found: list[module.MinuteCounts]) -> list[int]:
    return [minute.enqueued for minute in found]
