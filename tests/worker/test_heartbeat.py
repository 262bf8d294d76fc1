"""Who beats takes back what dead workers held; but not before others had a chance to be heard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from partition_driver import PartitionDriver

from conftest import eventually
from proxy import Proxy
from qbull.config import QueueSettings
from qbull.embedded.server import EmbeddedServer
from qbull.errors import ServerAway
from qbull.store.connection.server import CALL_TIMEOUT_SECONDS
from qbull.store.read import inspect
from qbull.store.store import ReadyStream, Store
from qbull.store.verbs.partition import Partition, Reclaimed
from qbull.store.verbs.workers import RegisteredWorker, ServedQueue
from qbull.worker.actor import stop_actors
from qbull.worker.outage import Outage
from qbull.worker.process.heartbeat import Heartbeat, HeartbeatThread
from qbull.worker.process.reclaimer import Reclaimer


async def test_a_newcomer_lets_others_be_heard_before_it_calls_them_dead(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    await driver.fetch("old")
    await silent(store, "old")
    heartbeat = Heartbeat(store, [driver.settings], lambda: ["new"], 3.0, Outage())

    await heartbeat.send()
    await heartbeat.reclaim_dead_workers()

    assert (await driver.counts()).active == 1
    assert await store.remembered_workers() == {"old", "new"}

    async def buried() -> bool:
        await heartbeat.send()
        await heartbeat.reclaim_dead_workers()
        return await store.remembered_workers() == {"new"}

    await eventually(buried)
    assert (await driver.counts()).waiting == 1


async def test_what_a_silent_worker_held_of_other_queues_is_taken_back_too(store: Store) -> None:
    """A pod that serves one queue is the first to notice; nobody else would look before the next sweep."""
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    await driver.fetch("old")
    await store.register_worker("old", RegisteredWorker("h", 1, "p", {"q": ServedQueue(1)}), 0.01)
    await silent(store, "old")
    heartbeat = Heartbeat(store, [QueueSettings("another")], lambda: ["new"], 0.5, Outage())

    async def buried() -> bool:
        await heartbeat.send()
        await heartbeat.reclaim_dead_workers()
        return await store.remembered_workers() == {"new"}

    await eventually(buried)
    assert (await driver.counts()).waiting == 1


async def test_what_one_node_keeps_away_does_not_hold_up_the_rest(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers = [await PartitionDriver.open(store, name, partitions=2) for name in ("a", "b")]
    for driver in drivers:
        for partition in await store.partitions(driver.settings):
            driver.partition = partition
            await driver.enqueue(f"job{partition.number}")
            await driver.fetch("dead")
    heartbeat = Heartbeat(store, [driver.settings for driver in drivers], lambda: ["new"], 30.0, Outage())
    reclaim = Partition.reclaim

    async def reclaim_elsewhere(partition: Partition, *arguments: Any) -> Reclaimed:
        if partition.number == 0:
            raise ServerAway("this node is away")
        return await reclaim(partition, *arguments)

    monkeypatch.setattr(Partition, "reclaim", reclaim_elsewhere)
    with pytest.raises(ServerAway):
        await heartbeat.reclaimer.reclaim("dead")

    for driver in drivers:
        away, there = await store.partitions(driver.settings)
        assert (await inspect.count(away)).active == 1
        assert (await inspect.count(there)).waiting == 1


async def test_one_that_cannot_be_buried_yet_does_not_hold_up_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await PartitionDriver.open(store)
    for worker in ("first", "second"):
        await silent(store, worker)
    heartbeat = Heartbeat(store, [driver.settings], lambda: ["new"], 0.5, Outage())
    reclaim = Partition.reclaim

    async def reclaim_others(partition: Partition, worker: str, *arguments: Any) -> Reclaimed:
        if worker == "first":
            raise ServerAway("this node is away")
        return await reclaim(partition, worker, *arguments)

    monkeypatch.setattr(Partition, "reclaim", reclaim_others)

    async def second_is_buried() -> bool:
        await heartbeat.send()
        with suppress(ServerAway):
            await heartbeat.reclaim_dead_workers()
        return await store.remembered_workers() == {"first", "new"}

    await eventually(second_is_buried)


async def test_whoever_buries_the_dead_is_heard_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    await driver.fetch("old")
    await silent(store, "old")
    reclaim, begun, go_on = Partition.reclaim, asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any) -> Reclaimed:
        begun.set()
        await go_on.wait()
        return await reclaim(*arguments)

    monkeypatch.setattr(Partition, "reclaim", slow)
    beating = asyncio.create_task(Heartbeat(store, [driver.settings], lambda: ["new"], 0.6, Outage()).run())
    await begun.wait()

    await heard_again(store, "new", 3 * 0.6)

    go_on.set()

    async def buried() -> bool:
        return await store.remembered_workers() == {"new"}

    await eventually(buried)
    await stop_actors([beating])


async def test_one_that_is_heard_again_in_time_is_not_called_dead(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    await driver.fetch("old")
    await silent(store, "old")
    await silent(store, "older")
    heartbeat = Heartbeat(store, [driver.settings], lambda: ["new"], 0.5, Outage())
    send, late = heartbeat.send, asyncio.Event()

    async def send_and_hear() -> list[str]:
        found = await send()
        if "old" in found:
            late.set()
        if late.is_set():  # it was only late, and is there from now on
            await store.heartbeat(1.0, ["old"])
        return found

    heartbeat.send = send_and_hear  # type: ignore[method-assign]

    async def buried() -> bool:
        await heartbeat.reclaim_dead_workers()
        return "older" not in await store.remembered_workers()

    await eventually(buried)
    assert late.is_set() and "old" in await store.remembered_workers()
    assert (await driver.counts()).active == 1


async def test_a_beat_whose_connection_has_died_unseen_is_sent_on_another(
    server: EmbeddedServer, store: Store
) -> None:
    async with Proxy(server.socket).running() as proxy:
        other = Store(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", "test")
        beating = asyncio.create_task(Heartbeat(other, [], lambda: ["new"], 1.0, Outage()).run())
        await heard_again(store, "new", 0)

        proxy.strand()

        await heard_again(store, "new", 1.0, within=CALL_TIMEOUT_SECONDS / 2)
        await stop_actors([beating])
        await other.close()


async def heard_again(store: Store, worker: str, later: float, within: float = 20.0) -> None:
    """Until what it last said is so many seconds newer than what it says now."""

    async def until() -> float:
        return float(await store.server.call("ZSCORE", store.names.workers, worker) or 0)

    first = await until()

    async def newer() -> bool:
        return await until() > first + later * 1000

    await eventually(newer, within)


async def test_a_process_sweeps_everywhere_and_then_where_its_workers_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition has a reader, so that many workers look at each of them as often as one does."""
    driver = await PartitionDriver.open(store, partitions=4)
    monkeypatch.setattr("qbull.worker.process.heartbeat.RECLAIM_SWEEP_SECONDS", 0.0)
    await store.register_worker("new", RegisteredWorker("h", 1, "p", {"q": ServedQueue(1, [2])}), 30.0)
    heartbeat = Heartbeat(store, [driver.settings], lambda: ["new"], 0.3, Outage())
    sweeps: list[set[int]] = []
    streams = store.streams

    async def noted(partitions: Sequence[Partition]) -> dict[bytes, ReadyStream]:
        sweeps.append({partition.number for partition in partitions})
        return await streams(partitions)

    async def swept_twice() -> bool:
        await heartbeat.reclaim_dead_workers()
        return len(sweeps) == 2

    monkeypatch.setattr(store, "streams", noted)
    await heartbeat.send()
    await eventually(swept_twice)

    assert sweeps == [{0, 1, 2, 3}, {2}]


async def test_a_full_sweep_that_failed_is_repeated_with_the_next_sweep(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await PartitionDriver.open(store, partitions=2)
    heartbeat = Heartbeat(store, [driver.settings], lambda: ["new"], 0.3, Outage())
    swept: list[int] = []
    streams = store.streams

    async def fails_once(partitions: Sequence[Partition]) -> dict[bytes, ReadyStream]:
        swept.append(len(partitions))
        if len(swept) == 1:
            raise ServerAway("cannot be reached")
        return await streams(partitions)

    monkeypatch.setattr(store, "streams", fails_once)
    with pytest.raises(ServerAway):
        await heartbeat.sweep()
    await heartbeat.sweep()

    assert swept == [2, 2]


async def test_an_unknown_worker_found_in_one_partition_loses_its_deliveries_in_all(store: Store) -> None:
    driver = await PartitionDriver.open(store, partitions=4)
    for number in (1, 2):
        driver.partition = store.partition(driver.settings, number)
        await driver.enqueue(f"job{number}")
        await driver.fetch("ghost")
    reclaimer = Reclaimer(store, [driver.settings], -1.0)

    async def still_held() -> int:
        partitions = await store.partitions(driver.settings)
        return sum([(await inspect.count(partition)).active for partition in partitions])

    await reclaimer.sweep(set(), {"q": [0, 3]})
    assert await still_held() == 2

    await reclaimer.sweep(set(), {"q": [2]})
    assert await still_held() == 0


async def test_a_process_that_reads_many_partitions_sweeps_less_often(store: Store) -> None:
    driver = await PartitionDriver.open(store, partitions=64)
    waits: list[float] = []
    for read in ([0], list(range(64)), list(range(1024))):
        await store.register_worker("new", RegisteredWorker("h", 1, "p", {"q": ServedQueue(1, read)}), 30.0)
        heartbeat = Heartbeat(store, [driver.settings], lambda: ["new"], 0.3, Outage())
        waits.append(await heartbeat.sweep())

    assert waits == [60, 240, 300]


async def silent(store: Store, worker: str) -> None:
    """It has beaten, and its time is over."""
    await store.heartbeat(0.01, [worker])

    async def over() -> bool:
        return await store.workers() == {}

    await eventually(over)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_beat_whose_start_was_cut_short_ends_when_told_to(server_url: str, begun: bool) -> None:
    def make() -> tuple[Store, Heartbeat]:
        store = Store(server_url, "test")
        return store, Heartbeat(store, [], lambda: ["new"], 3.0, Outage())

    thread = HeartbeatThread(make)
    starting = asyncio.create_task(thread.start())
    if begun:
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])

    await asyncio.wait_for(thread.stop(), 20)

    assert not thread._thread.is_alive()
