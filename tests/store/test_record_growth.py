"""Records can grow: a job whose body has more values than this version knows lives a whole life, and loses none of them."""

from __future__ import annotations

import msgspec
import pytest
from partition_driver import PartitionDriver, ids_of

from qbull.core.flow import (
    HAS_DEPENDENCIES_FLAG,
    HAS_DEPENDENTS_FLAG,
    Dependency,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    with_flow_flags,
)
from qbull.core.ids import new_id, new_token
from qbull.core.record import (
    REPORT_ALL_FLAG,
    Body,
    ExtendedBody,
    body_of,
    pack,
    repack,
    split_ending,
    task_in,
)
from qbull.core.route import digest
from qbull.store.read import inspect
from qbull.store.read.integrity import check_integrity
from qbull.store.store import Store
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.layout import repartition
from qbull.store.verbs.move import PartitionMoves
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.partition import NewJob

HOUR = 3_600_000
KNOWN = len(ExtendedBody.__struct_fields__)


def later_record(
    extra: int, *, lane: bytes = b"", reports: int = 0, payload: bytes = b"{}", **fields: object
) -> bytes:
    """The record of a job that a later version has enqueued: with so many values that this one does not know."""
    record = pack(ExtendedBody("task", payload, **fields), priority=5, lane=lane, reports=reports)  # type: ignore[arg-type]
    at = 11 + len(lane)
    values = [*msgspec.msgpack.decode(record[at:]), *(f"new {n}" for n in range(extra))]
    return record[:at] + msgspec.msgpack.encode(values)


def unknown_values(record: bytes) -> list[str]:
    found: list[str] = msgspec.msgpack.decode(record[11 + record[10] :])[KNOWN:]
    return found


pytestmark = pytest.mark.parametrize("extra", [0, 1, 2, 300])


async def test_a_job_is_delayed_promoted_retried_and_completed(store: Store, extra: int) -> None:
    driver = await PartitionDriver.open(store, order="key")
    record = later_record(extra, lane=digest("k"), key="k")
    expected = unknown_values(record)
    await driver.partition.enqueue([NewJob("a", HOUR, record)])
    await driver.let_time_pass("a")
    await driver.partition.promote()
    [delivery] = await driver.fetch()
    job = delivery.job(0)
    body = body_of(job.record)
    body.attempt = 2
    outcomes = PartitionOutcomes()
    outcomes.delay(job.position, job.id, repack(job.record, body), 60_000)
    assert await driver.partition.settle(outcomes) == []
    assert await driver.partition.promote_one(new_token(), "a") == "promoted"
    [delivery] = await driver.fetch()
    again = delivery.job(0).record
    assert await driver.settle(delivery, 0, "done")

    found = await inspect.find(driver.partition, "a")

    assert found is not None
    assert (found.state, found.body().attempt, found.body().key) == ("completed", 2, "k")
    assert unknown_values(again) == expected
    assert task_in(again[:160]) == "task"
    assert await check_integrity(driver.partition) == []


async def test_a_dead_letter_keeps_its_values_when_it_is_retried(store: Store, extra: int) -> None:
    driver = await PartitionDriver.open(store)
    record = later_record(extra)
    await driver.partition.enqueue([NewJob("a", 0, record)])
    await driver.fail("a")

    assert await driver.retry("a") == ["retried"]

    [delivery] = await driver.fetch()
    assert unknown_values(delivery.job(0).record) == unknown_values(record)


async def test_a_job_that_has_not_started_in_time_is_cancelled(store: Store, extra: int) -> None:
    driver = await PartitionDriver.open(store)
    await driver.partition.enqueue([NewJob("a", f"0 {HOUR}", later_record(extra, expires=HOUR))])
    await driver.partition.enqueue([NewJob("b", f"0 {HOUR}", later_record(extra))])
    await driver.let_end_come("a", "b")

    await driver.partition.promote()

    assert [await driver.state(id) for id in ("a", "b")] == ["cancelled", "waiting"]


@pytest.mark.parametrize("size", [10, 3000, 70_000])
async def test_a_large_job_is_reported_without_its_payload(store: Store, extra: int, size: int) -> None:
    driver = await PartitionDriver.open(store)
    record = later_record(extra, reports=REPORT_ALL_FLAG, payload=b"p" * size, schedule="nightly")
    await driver.partition.enqueue([NewJob("a", 0, record)])
    await driver.fail("a")

    entries, _ = await driver.partition.reports([], 10)

    [waiting], [failed] = (
        [value for _, fields in entries for name, value in [fields] if name == key] for key in (b"wa", b"fa")
    )
    for told in (waiting, split_ending(failed)[0]):
        body = body_of(told)
        assert (body.task, body.schedule) == ("task", "nightly")
        assert body.payload == (b"p" * size if len(record) <= 2000 else b"")
        assert unknown_values(told) == unknown_values(record)


@pytest.mark.parametrize("size", [10, 3000])
async def test_a_job_of_a_flow_tells_of_its_end(store: Store, extra: int, size: int) -> None:
    driver = await PartitionDriver.open(store)
    child, parent = new_id(0), new_id(0)
    waits = with_flow_flags(later_record(extra, flow="f1"), HAS_DEPENDENCIES_FLAG)
    tells = [Dependent("q", parent, None, 0)]
    awaited = with_flow_flags(
        later_record(extra, flow="f1", tells=tells, payload=b"p" * size), HAS_DEPENDENTS_FLAG
    )
    seeds = [
        FlowJobSeed("q", parent, None, False, 0, waits, awaits=[Dependency("q", child, "task")]),
        FlowJobSeed("q", child, None, False, 0, awaited),
    ]
    flows = FlowStore(store)
    assert await flows.start(FlowPlan("f1", seeds), None)
    await driver.complete_together()

    await flows.dispatch(driver.partition)

    [delivery] = await driver.fetch()
    assert ids_of(delivery) == [parent]
    assert unknown_values(delivery.job(0).record) == unknown_values(waits)


async def test_a_job_moves_to_another_partition(store: Store, extra: int) -> None:
    driver = await PartitionDriver.open(store)
    record = later_record(extra)
    await driver.partition.enqueue([NewJob("a", HOUR, record)])
    layout = await repartition(store, driver.settings, 3)
    await PartitionMoves(store, driver.settings).move_jobs(layout, 0)
    driver.partition = store.partition(driver.settings, layout.home(digest("a")))

    await driver.partition.promote_one(new_token(), "a")

    [delivery] = await driver.fetch()
    assert unknown_values(delivery.job(0).record) == unknown_values(record)


async def test_a_record_of_an_older_version_has_fewer_values(store: Store, extra: int) -> None:
    """The first version wrote two values; the others have defaults."""
    driver = await PartitionDriver.open(store)
    full = pack(Body("task", b"{}"), priority=5, lane=b"")
    values = msgspec.msgpack.decode(full[11:])[: 2 + min(extra, 5)]
    await driver.partition.enqueue([NewJob("a", f"0 {HOUR}", full[:11] + msgspec.msgpack.encode(values))])
    await driver.let_end_come("a")

    await driver.partition.promote()
    [delivery] = await driver.fetch()
    job = delivery.job(0)
    body = body_of(job.record)

    assert (body.task, body.attempt, body.expires) == ("task", 1, None)
    assert await driver.settle(delivery, 0, "done")
