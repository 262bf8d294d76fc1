"""The specification of retry: finished jobs go round again, each where the order of its lane wants it."""

from __future__ import annotations

from partition_driver import CRASHED, PartitionDriver, ids_of

from qbull.config import Keep, Lane
from qbull.core.record import body_of, crashes_of
from qbull.store.read import pages
from qbull.store.store import Store
from qbull.store.verbs.partition import JobToRetry


async def test_a_dead_letter_waits_again(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    await driver.fail("a")

    assert await driver.retry("a") == ["retried"]

    assert await driver.state("a") == "waiting"
    (delivery,) = await driver.fetch()
    body = body_of(delivery.job(0).record)
    assert (body.attempt, [attempt.error for attempt in body.history]) == (1, ["broken"])


async def test_a_call_that_is_sent_twice_is_answered_alike_and_done_once(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    await driver.fail("a")
    job = await driver.again("a")

    first = await driver.partition.retry("token", [job])
    (delivery,) = await driver.fetch()
    await driver.finish(delivery)
    second = await driver.partition.retry("token", [job])

    assert first == second == ["retried"]
    assert await driver.state("a") == "completed"


async def test_a_job_that_is_elsewhere_by_now_is_left_alone(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("waits", "fails", "done")
    seen = [await driver.fail_and_see(id) for id in ("waits", "fails", "done")]
    await driver.retry("waits", "fails", "done")
    for delivery in await driver.fetch():
        word = {"fails": "dead", "done": "done"}.get(ids_of(delivery)[0])
        if word:
            await driver.settle(delivery, 0, word)
        else:
            await driver.partition.release("w1", [delivery.position])

    words = await driver.partition.retry("again", [*seen, JobToRetry("nobody", b"f1-0", b"")])

    assert words == ["waiting", "moved", "completed", "unknown"]
    assert await driver.state("fails") == "failed"


async def test_what_halts_its_lane_goes_to_the_head_of_it(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key", on_failed="halt")
    await driver.enqueue("a1", "a2", "a3", key="a")
    await driver.fail("a1")
    assert await driver.fetch() == []

    await driver.retry("a1")

    (head,) = await driver.fetch()
    assert ids_of(head) == ["a1"]
    await driver.finish(head)
    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a2", "a3"]]


async def test_any_other_goes_to_the_end_of_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    await driver.fail("a1")

    await driver.retry("a1")

    assert await driver.run_all() == ["a2", "a1"]


async def test_a_lane_with_a_limit_keeps_it(store: Store) -> None:
    driver = await PartitionDriver.open(store, lane=Lane(limit=2))
    await driver.enqueue("a1", key="a")
    await driver.fail("a1")
    await driver.enqueue("a2", "a3", key="a")

    await driver.retry("a1")

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a2"], ["a3"]]


async def test_a_retried_job_that_killed_workers_stays_a_suspect(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    for _ in range(3):
        (delivery,) = await driver.fetch("w")
        await driver.partition.reclaim("w", CRASHED, [delivery.position])
    assert await driver.state("a") == "failed"

    await driver.retry("a")

    (delivery,) = await driver.fetch()
    assert crashes_of(delivery.job(0).record) == 3


async def test_what_was_removed_or_retried_is_in_no_page(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b", "c")
    await driver.fail("a", "b", "c")

    await driver.retry("b")

    assert [job.id for job in await pages.page([driver.partition], "failed", 0, 10)] == ["c", "a"]


async def test_a_dead_letter_that_halts_its_lane_is_never_dropped(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key", on_failed="halt", keep=Keep(failed=2))
    for key in "abcdef":
        await driver.enqueue(f"{key}1", f"{key}2", key=key)
        await driver.fail(f"{key}1")
    await driver.enqueue("free")
    await driver.fail("free")

    assert (await driver.counts()).failed >= 6
    assert [await driver.state(f"{key}1") for key in "abcdef"] == ["failed"] * 6
    await driver.retry(*(f"{key}1" for key in "abcdef"))
    assert sorted(await driver.run_all()) == sorted(f"{key}{n}" for key in "abcdef" for n in "12")
