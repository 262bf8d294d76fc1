"""The specification of signal: kept until the task takes it, once, and it wakes a job that waits for it."""

from __future__ import annotations

from partition_driver import CRASHED, PartitionDriver

from qbull.core.calls import HistoryChange
from qbull.core.durable import StepRecord, encode_record
from qbull.core.ids import new_token
from qbull.core.record import ExtendedBody, repack
from qbull.core.signals import MAX_SIGNALS, MAX_SIGNALS_BYTES, new_signal
from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.store.verbs.history import HistoryWrite, read_records, write_history
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.signals import read_pending_signals, send_signal

LATER_MS = 4_000_000_000_000


async def send(
    driver: PartitionDriver, job: str, name: str, value: bytes = b"1", id: str = "", token: str = ""
) -> str:
    token = token or new_token()
    return await send_signal(driver.partition, None, token, job, new_signal(name, value, id or token))


async def pending(driver: PartitionDriver, job: str) -> list[tuple[int, str, bytes]]:
    found = await read_pending_signals(driver.partition, job.encode())
    return [(number, one.name, one.content) for number, one in found.signals.items()]


async def take(
    driver: PartitionDriver, delivery: Delivery, number: int, taken: int, worker: str = "w1"
) -> bool:
    job = delivery.job(0)
    record = number, encode_record(StepRecord(number, "wait_for a", b"", 0, "r", b"1"))
    write = HistoryWrite(job.id, job.position, HistoryChange([record], taken=taken))
    return (await write_history(driver.partition, None, worker, [write]))[0]


async def suspend(
    driver: PartitionDriver, delivery: Delivery, *names: str, seen: int = 0, hold_lane: bool = True
) -> bool:
    outcomes, job = PartitionOutcomes(), delivery.job(0)
    body = ExtendedBody("task", b"{}", suspended="waiting", waits_for=list(names))
    until = f"{LATER_MS} {seen}"
    outcomes.suspend(job.position, job.id, repack(job.record, body), until, hold_lane=hold_lane)
    return await driver.partition.settle(outcomes) == []


async def test_signals_are_kept_in_the_order_of_sending(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")

    assert [await send(driver, "j", name, name.encode()) for name in "aba"] == ["sent"] * 3

    assert await pending(driver, "j") == [(1, "a", b"a"), (2, "b", b"b"), (3, "a", b"a")]
    assert await driver.run_all() == ["j"]


async def test_a_call_that_is_sent_twice_keeps_one_signal(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")

    for _ in range(2):
        assert await send(driver, "j", "a", token="same") == "sent"
    assert len(await pending(driver, "j")) == 1

    # The proof of the call is gone, or is in another partition by now: the job itself remembers its id.
    await store.server.call("DEL", driver.partition.base + "once:same")
    assert await send(driver, "j", "a", id="same", token="other") == "sent"
    assert len(await pending(driver, "j")) == 1
    await driver.run_all()


async def test_a_repeated_call_is_answered_although_the_job_has_ended(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")
    assert await send(driver, "j", "a", id="x") == "sent"
    await driver.run_all()

    assert await send(driver, "j", "a", id="x") == "sent"
    assert await send(driver, "j", "a", id="y") == "completed"
    assert await send(driver, "unknown", "a") == "unknown"


async def test_a_signal_is_taken_with_its_record_and_only_once(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")
    for value in (b"1", b"2"):
        await send(driver, "j", "a", value)
    (delivery,) = await driver.fetch()

    for _ in range(2):
        assert await take(driver, delivery, 1, taken=1)
    assert await pending(driver, "j") == [(2, "a", b"2")]
    assert len(await read_records(driver.partition, "j")) == 1
    await driver.finish(delivery)


async def test_a_worker_that_lost_its_delivery_takes_nothing(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")
    await send(driver, "j", "a")
    (old,) = await driver.fetch("zombie")
    await driver.partition.reclaim("zombie", CRASHED, [])

    assert not await take(driver, old, 1, taken=1, worker="zombie")

    assert len(await pending(driver, "j")) == 1
    await driver.run_all()


async def test_a_signal_wakes_the_job_that_waits_for_it(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")
    (delivery,) = await driver.fetch()
    await suspend(driver, delivery, "a", "b")

    await send(driver, "j", "other")
    assert await driver.state("j") == "delayed"
    await send(driver, "j", "b")

    assert await driver.state("j") == "waiting"
    assert await driver.run_all() == ["j"]


async def test_a_signal_that_comes_while_the_job_leaves_wakes_it(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j", "k")
    first, second = await driver.fetch()
    await send(driver, "j", "a")
    await send(driver, "k", "a")

    await suspend(driver, first, "a", seen=0)
    await suspend(driver, second, "b", seen=1)

    assert (await driver.partition.promote()).moved == 1
    assert await driver.state("k") == "delayed"
    assert await driver.run_all() == ["j"]


async def test_a_job_that_waits_keeps_its_place_in_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", key="a")
    (delivery,) = await driver.fetch()
    await suspend(driver, delivery, "go")
    assert await driver.fetch() == []

    await send(driver, "a0", "go")

    assert await driver.run_all() == ["a0", "a1"]


async def test_a_job_that_lets_others_pass_joins_its_lane_again(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", key="a")
    (delivery,) = await driver.fetch()
    await suspend(driver, delivery, "go", hold_lane=False)

    await send(driver, "a0", "go")

    assert await driver.run_all() == ["a1", "a2", "a0"]


async def test_signals_are_bounded_in_number_and_size(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j", "k")

    words = [await send(driver, "j", "a") for _ in range(MAX_SIGNALS + 1)]
    assert words == ["sent"] * MAX_SIGNALS + ["full"]

    large = b"1" * (MAX_SIGNALS_BYTES // 2)
    assert [await send(driver, "k", "a", large) for _ in range(2)] == ["sent", "full"]
    await driver.run_all()


async def test_signals_are_deleted_with_their_job(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("j")
    await send(driver, "j", "a")

    await driver.partition.remove(new_token(), [("j", b"")])

    assert not await store.server.call("EXISTS", driver.partition.base + "job:j")
