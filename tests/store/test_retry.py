"""The specification of retry: finished jobs go round again, each where the order of its lane wants it."""

from __future__ import annotations

from desk import CRASHED, Desk, ids_of

from qbull.config import Keep, Lane
from qbull.core.record import body_of, crashes_of
from qbull.store.read import pages
from qbull.store.store import Store
from qbull.store.verbs.partition import JobToRetry


async def test_a_dead_letter_waits_again(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    await desk.fail("a")

    assert await desk.retry("a") == ["retried"]

    assert await desk.state("a") == "waiting"
    (delivery,) = await desk.fetch()
    body = body_of(delivery.job(0).record)
    assert (body.attempt, [attempt.error for attempt in body.history]) == (1, ["broken"])


async def test_a_call_that_is_sent_twice_is_answered_alike_and_done_once(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    await desk.fail("a")
    job = await desk.again("a")

    first = await desk.partition.retry("token", [job])
    (delivery,) = await desk.fetch()
    await desk.finish(delivery)
    second = await desk.partition.retry("token", [job])

    assert first == second == ["retried"]
    assert await desk.state("a") == "completed"


async def test_a_job_that_is_elsewhere_by_now_is_left_alone(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("waits", "fails", "done")
    seen = [await desk.fail_and_see(id) for id in ("waits", "fails", "done")]
    await desk.retry("waits", "fails", "done")
    for delivery in await desk.fetch():
        word = {"fails": "dead", "done": "done"}.get(ids_of(delivery)[0])
        if word:
            await desk.settle(delivery, 0, word)
        else:
            await desk.partition.release([delivery.place])

    words = await desk.partition.retry("again", [*seen, JobToRetry("nobody", b"f1-0", b"")])

    assert words == ["waiting", "moved", "completed", "unknown"]
    assert await desk.state("fails") == "failed"


async def test_what_halts_its_lane_goes_to_the_head_of_it(store: Store) -> None:
    desk = await Desk.open(store, order="key", on_failed="halt")
    await desk.enqueue("a1", "a2", "a3", key="a")
    await desk.fail("a1")
    assert await desk.fetch() == []

    await desk.retry("a1")

    (head,) = await desk.fetch()
    assert ids_of(head) == ["a1"]
    await desk.finish(head)
    assert [ids_of(delivery) for delivery in await desk.fetch()] == [["a2", "a3"]]


async def test_any_other_goes_to_the_end_of_its_lane(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a1", "a2", key="a")
    await desk.fail("a1")

    await desk.retry("a1")

    assert await desk.run_all() == ["a2", "a1"]


async def test_a_lane_with_a_limit_keeps_it(store: Store) -> None:
    desk = await Desk.open(store, lane=Lane(limit=2))
    await desk.enqueue("a1", key="a")
    await desk.fail("a1")
    await desk.enqueue("a2", "a3", key="a")

    await desk.retry("a1")

    assert [ids_of(delivery) for delivery in await desk.fetch()] == [["a2"], ["a3"]]


async def test_a_job_that_killed_workers_has_one_try_alone(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    for _ in range(3):
        (delivery,) = await desk.fetch("w")
        await desk.partition.reclaim("w", CRASHED, [delivery.place])
    assert await desk.state("a") == "failed"

    await desk.retry("a")

    (delivery,) = await desk.fetch()
    assert crashes_of(delivery.job(0).record) == 2


async def test_what_was_removed_or_retried_is_in_no_page(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a", "b", "c")
    await desk.fail("a", "b", "c")

    await desk.retry("b")

    assert [job.id for job in await pages.page([desk.partition], "failed", 0, 10)] == ["c", "a"]


async def test_a_dead_letter_that_halts_its_lane_is_never_dropped(store: Store) -> None:
    desk = await Desk.open(store, order="key", on_failed="halt", keep=Keep(failed=2))
    for key in "abcdef":
        await desk.enqueue(f"{key}1", f"{key}2", key=key)
        await desk.fail(f"{key}1")
    await desk.enqueue("free")
    await desk.fail("free")

    assert (await desk.counts()).failed >= 6
    assert [await desk.state(f"{key}1") for key in "abcdef"] == ["failed"] * 6
    await desk.retry(*(f"{key}1" for key in "abcdef"))
    assert sorted(await desk.run_all()) == sorted(f"{key}{n}" for key in "abcdef" for n in "12")
