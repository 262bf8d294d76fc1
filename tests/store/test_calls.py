"""The specification of calls: one job for each, however often it is sent, and its outcome wakes the caller."""

from __future__ import annotations

from partition_driver import CRASHED, PartitionDriver

from qbull.core.calls import HistoryChange, StartedCall, read_outcomes
from qbull.core.durable import StepRecord, encode_record
from qbull.core.flow import (
    HAS_DEPENDENTS_FLAG,
    Dependency,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    encode,
    with_flow_flags,
)
from qbull.core.record import ExtendedBody, pack, repack
from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.store.verbs.flow_messages import awaited_by
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.history import HistoryWrite, read_job_data, write_history
from qbull.store.verbs.outcomes import PartitionOutcomes

LATER_MS = 4_000_000_000_000


def started(name: str, id: str, caller: str = "caller") -> StartedCall:
    body = ExtendedBody("task", b"{}", tells=[Dependent("q", caller, None, 0, call=name)])
    record = with_flow_flags(pack(body, priority=5, lane=b""), HAS_DEPENDENTS_FLAG)
    plan = FlowPlan(name, [FlowJobSeed("q", id, None, False, 0, record)])
    return StartedCall(name, encode(Dependency("q", id, "task")), encode(plan))


def record(number: int, end: str = "l") -> tuple[int, bytes]:
    return number, encode_record(StepRecord(number, "call task", b"", 0, end, b"null"))  # type: ignore[arg-type]


async def write(delivery: Delivery, change: HistoryChange) -> bool:
    job = delivery.job(0)
    write = HistoryWrite(job.id, job.position, change)
    return (await write_history(delivery.partition, None, "w1", [write]))[0]


async def suspend(delivery: Delivery, seen: int = 0, reason: str = "calling") -> bool:
    outcomes, job = PartitionOutcomes(), delivery.job(0)
    record = repack(job.record, ExtendedBody("task", b"{}", suspended=reason))
    outcomes.suspend(job.position, job.id, record, f"{LATER_MS} {seen}", hold_lane=True)
    return await delivery.partition.settle(outcomes) == []


async def messages(driver: PartitionDriver) -> int:
    return int(await driver.store.server.call("XLEN", driver.partition.base + "outgoing"))


async def outcomes(driver: PartitionDriver, id: str = "caller") -> dict[str, bytes]:
    return dict(read_outcomes(await read_job_data(driver.partition, id)).outcomes)


async def calling(store: Store, **settings: object) -> tuple[PartitionDriver, FlowStore, Delivery]:
    driver = await PartitionDriver.open(store, **settings)
    await driver.enqueue("caller")
    (delivery,) = await driver.fetch()
    return driver, FlowStore(store), delivery


async def test_a_call_that_is_sent_twice_enqueues_one_job(store: Store) -> None:
    driver, flows, delivery = await calling(store)
    change = HistoryChange([record(1)], call=started("c1", "called"))

    for _ in range(2):
        assert await write(delivery, change)
    assert await messages(driver) == 1
    await flows.dispatch(driver.partition)
    # A reply that was lost long ago: the job has ended meanwhile, and its queue does not keep it.
    await driver.store.server.call("DEL", driver.partition.base + "once:c1-1")
    assert await write(delivery, change)
    assert await messages(driver) == 0

    assert await driver.state("called") == "waiting"
    await driver.finish(delivery)
    assert await driver.run_all() == ["called"]
    await flows.dispatch(driver.partition)


async def test_a_worker_that_lost_its_delivery_calls_nothing(store: Store) -> None:
    driver, _, delivery = await calling(store)
    await driver.partition.reclaim("w1", CRASHED, [])

    assert not await write(delivery, HistoryChange([record(1)], call=started("c1", "called")))

    assert await messages(driver) == 0
    assert await read_job_data(driver.partition, "caller") == {}
    assert await driver.run_all() == ["caller"]


async def test_the_outcome_of_a_called_job_wakes_its_caller_once(store: Store) -> None:
    driver, flows, delivery = await calling(store)
    await write(delivery, HistoryChange([record(1)], call=started("c1", "called")))
    assert [one.id for _, one in await awaited_by(driver.partition, b"caller")] == ["called"]
    assert await suspend(delivery)
    await flows.dispatch(driver.partition)
    (called,) = await driver.fetch()
    await driver.finish(called)

    assert await driver.state("caller") == "delayed"
    await flows.dispatch(driver.partition)

    assert await driver.state("caller") == "waiting"
    before = await outcomes(driver)
    assert list(before) == ["c1"] and before["c1"][:1] == b"c"
    assert await awaited_by(driver.partition, b"caller") == []
    # The called job is retried, or its message is delivered again: the first outcome counts.
    end = await driver.partition.server.script(
        "call_answer", driver.partition.base, 0, "caller", "c1", "f", b"other"
    )
    assert (end, await outcomes(driver)) == (b"known", before)
    (again,) = await driver.fetch()
    for _ in range(2):
        assert await write(again, HistoryChange([record(2, "r")], joined="c1"))
    assert await outcomes(driver) == {}
    end = await driver.partition.server.script(
        "call_answer", driver.partition.base, 0, "caller", "c1", "c", b"late"
    )
    assert (end, await outcomes(driver)) == (b"known", {})
    await driver.finish(again)


async def test_an_outcome_that_comes_before_the_suspension_keeps_the_caller_awake(store: Store) -> None:
    driver, flows, delivery = await calling(store)
    await write(delivery, HistoryChange([record(1)], call=started("c1", "called")))
    await flows.dispatch(driver.partition)
    (called,) = await driver.fetch("w2")
    await driver.finish(called)
    await flows.dispatch(driver.partition)

    assert await suspend(delivery, seen=0)

    assert (await driver.partition.promote()).moved == 1
    assert await driver.run_all() == ["caller"]


async def test_a_sleeping_caller_is_not_woken(store: Store) -> None:
    driver, flows, delivery = await calling(store)
    await write(delivery, HistoryChange([record(1)], call=started("c1", "called")))
    outcomes_of_run, job = PartitionOutcomes(), delivery.job(0)
    body = ExtendedBody("task", b"{}", suspended="sleeping", woken_ms=LATER_MS)
    outcomes_of_run.suspend(job.position, job.id, repack(job.record, body), LATER_MS, hold_lane=True)
    await driver.partition.settle(outcomes_of_run)
    await flows.dispatch(driver.partition)
    assert await driver.run_all() == ["called"]
    await flows.dispatch(driver.partition)

    assert await driver.state("caller") == "delayed"
    assert list(await outcomes(driver)) == ["c1"]
    await driver.cancel("caller")


async def test_a_cancelled_caller_cancels_what_it_waits_for_and_nothing_else(store: Store) -> None:
    driver, flows, delivery = await calling(store)
    for number, name in enumerate(("c1", "c2"), 1):
        await write(delivery, HistoryChange([record(number)], call=started(name, f"called {name}")))
    await flows.dispatch(driver.partition)
    first, second = await driver.fetch("w2")
    await driver.finish(first)
    await flows.dispatch(driver.partition)
    await driver.partition.release("w2", [second.position])
    assert await suspend(delivery, seen=1)

    assert await driver.cancel("caller") == ["cancelled"]
    for _ in range(2):
        await flows.dispatch(driver.partition)

    assert [await driver.state(f"called {name}") for name in ("c1", "c2")] == ["completed", "cancelled"]
    assert await messages(driver) == 0


async def test_a_call_that_is_not_enqueued_yet_is_cancelled_too(store: Store) -> None:
    driver, flows, delivery = await calling(store)
    await write(delivery, HistoryChange([record(1)], call=started("c1", "called")))
    assert await suspend(delivery)
    await driver.cancel("caller")

    await flows.dispatch(driver.partition)
    await flows.dispatch(driver.partition)

    assert await driver.state("called") == "cancelled"


async def test_an_outcome_that_a_failover_has_lost_is_found_again(store: Store) -> None:
    driver, flows, delivery = await calling(store)
    await write(delivery, HistoryChange([record(1)], call=started("c1", "called")))
    outcomes_of_run, job = PartitionOutcomes(), delivery.job(0)
    body = ExtendedBody("task", b"{}", suspended="calling")
    outcomes_of_run.suspend(
        job.position, job.id, repack(job.record, body), f"{253_402_300_799_002} 0", hold_lane=True
    )
    await driver.partition.settle(outcomes_of_run)
    await flows.dispatch(driver.partition)
    assert await driver.run_all() == ["called"]
    await store.server.call("DEL", driver.partition.base + "outgoing")

    assert await flows.recheck(driver.partition, 0) == 0

    assert await driver.state("caller") == "waiting"
    await driver.run_all()
