"""A job that waits for one which existed before it: it hears of every ending, once, whatever happens in between."""

from __future__ import annotations

import pytest
from flow_driver import FlowDriver
from partition_driver import DONE

from qbull.config import Keep
from qbull.core.flow import Dependency, DependencyFailureMode, Dependent, FlowPlan, Follower
from qbull.core.ids import new_id
from qbull.core.record import ExtendedBody, pack
from qbull.store.read.integrity import check_integrity
from qbull.store.store import Store
from qbull.store.verbs.flow_messages import dependencies_of, follow
from qbull.store.verbs.layout import repartition
from qbull.store.verbs.move import PartitionMoves
from qbull.store.verbs.partition import NewJob

LATER = "l8ter"


class Pair:
    """A plain job in partition 0, and one in partition 1 that waits for it and was enqueued later."""

    def __init__(self, flow_driver: FlowDriver, mode: DependencyFailureMode = "stop") -> None:
        self.flows = flow_driver
        self.mode = mode
        self.first, self.later = new_id(0), new_id(1)
        self.follower = Follower(Dependent("q", self.later, None, 0), LATER)

    async def enqueue_first(self, when: int = 0) -> None:
        record = pack(ExtendedBody("task", b"{}", expires=3_600_000), priority=5, lane=b"")
        await self.flows.driver(0).partition.enqueue([NewJob(self.first, when, record)])

    async def enqueue_later(self) -> None:
        dependency = Dependency("q", self.first, "task")
        seed = self.flows.seed(self.later, awaits=[dependency], mode=self.mode, flow=LATER)
        await self.flows.flows.start(FlowPlan(LATER, [seed]), None)

    async def follow(self) -> str:
        return await follow(self.flows.driver(0).partition, self.first, self.follower)

    async def state(self) -> str | None:
        return await self.flows.state(1, self.later)


async def follow_waiting_job(
    store: Store, mode: DependencyFailureMode = "stop", keep: Keep | None = None
) -> Pair:
    pair = Pair(await FlowDriver.open(store, **({} if keep is None else {"keep": keep})), mode)
    await pair.enqueue_first()
    await pair.enqueue_later()
    assert await pair.follow() == "following"
    return pair


@pytest.mark.parametrize("keep", [Keep(), Keep(completed=0)])
async def test_it_runs_when_the_other_has_completed(store: Store, keep: Keep) -> None:
    pair = await follow_waiting_job(store, keep=keep)
    assert await pair.state() == "delayed"

    await pair.flows.driver(0).complete_together()
    await pair.flows.ship()

    assert await pair.state() == "waiting"
    [(letter, facts)] = await dependencies_of(pair.flows.driver(1).partition, pair.later)
    assert (letter, facts.id, facts.result) == ("c", pair.first, b"1")
    assert await pair.flows.notes(0) == 0


@pytest.mark.parametrize(
    ("word", "mode", "state"),
    [
        ("dead", "stop", "failed"),
        ("dead", "continue", "waiting"),
        ("cancel", "stop", "cancelled"),
        ("remove", "stop", "cancelled"),
        ("remove", "continue", "waiting"),
        ("expire", "stop", "cancelled"),
        ("crash", "stop", "failed"),
    ],
)
async def test_it_hears_of_every_other_ending(
    store: Store, word: str, mode: DependencyFailureMode, state: str
) -> None:
    pair = await follow_waiting_job(store, mode)
    driver = pair.flows.driver(0)

    if word == "remove":
        assert await driver.remove(pair.first) == ["removed"]
    elif word == "expire":
        await store.server.call("ZADD", driver.partition.base + "expiring", 1, pair.first)
        await driver.partition.promote()
    elif word == "crash":
        for n in range(3):
            [delivery] = await driver.fetch(f"w{n}")
            await driver.partition.reclaim(f"w{n}", DONE, [delivery.position])
    else:
        [delivery] = await driver.fetch()
        await driver.settle(delivery, 0, word)
    await pair.flows.ship()

    assert await pair.state() == state


async def test_a_job_that_a_worker_has_can_be_followed(store: Store) -> None:
    pair = Pair(await FlowDriver.open(store))
    await pair.enqueue_first()
    [delivery] = await pair.flows.driver(0).fetch()
    await pair.enqueue_later()

    assert await pair.follow() == "following"
    await pair.flows.driver(0).settle(delivery, 0, "done")
    await pair.flows.ship()

    assert await pair.state() == "waiting"


@pytest.mark.parametrize(
    ("word", "state"), [("done", "waiting"), ("dead", "failed"), ("cancel", "cancelled")]
)
async def test_a_job_that_has_ended_tells_at_once(store: Store, word: str, state: str) -> None:
    pair = Pair(await FlowDriver.open(store))
    await pair.enqueue_first()
    [delivery] = await pair.flows.driver(0).fetch()
    await pair.flows.driver(0).settle(delivery, 0, word)
    await pair.enqueue_later()

    assert [await pair.follow(), await pair.follow()] == ["ended", "ended"]
    await pair.flows.ship()

    assert await pair.state() == state


async def test_a_job_that_is_retried_tells_again(store: Store) -> None:
    pair = await follow_waiting_job(store)
    await pair.flows.driver(0).fail(pair.first)
    await pair.flows.ship()
    assert await pair.state() == "failed"

    await pair.flows.driver(0).retry(pair.first)
    await pair.flows.driver(0).complete_together()
    await pair.flows.ship()

    assert await pair.state() == "waiting"


async def test_following_twice_is_following_once(store: Store) -> None:
    pair = await follow_waiting_job(store)

    assert await pair.follow() == "following"
    await pair.flows.driver(0).complete_together()
    assert await pair.flows.notes(0) == 1
    await pair.flows.ship()

    assert await pair.state() == "waiting"


async def test_if_its_caller_dies_before_it_follows_a_recheck_finds_the_ending(store: Store) -> None:
    pair = Pair(await FlowDriver.open(store))
    await pair.enqueue_first()
    await pair.enqueue_later()  # And then the caller dies.
    await pair.flows.driver(0).complete_together()
    await pair.flows.ship()
    assert await pair.state() == "delayed"

    await pair.flows.flows.recheck(pair.flows.driver(1).partition, 0)

    assert await pair.state() == "waiting"


async def test_a_job_that_is_gone_is_unknown_and_counts_as_removed(store: Store) -> None:
    pair = Pair(await FlowDriver.open(store))
    await pair.enqueue_later()

    assert await pair.follow() == "unknown"
    await pair.flows.flows.tell_removed(pair.follower, Dependency("q", pair.first, "task"))

    assert await pair.state() == "cancelled"


async def test_followers_move_with_their_job_to_another_partition(store: Store) -> None:
    pair = Pair(await FlowDriver.open(store))
    await pair.enqueue_first(when=3_600_000)
    await pair.enqueue_later()
    assert await pair.follow() == "following"
    moves = PartitionMoves(store, pair.flows.settings)
    layout = await repartition(store, pair.flows.settings, 3)
    await moves.all_steps()

    driver = pair.flows.driver(layout.home_of_id(pair.first))
    await driver.partition.promote_one("token", pair.first)
    await driver.complete_together()
    await pair.flows.flows.dispatch(driver.partition)

    assert await pair.flows.state(layout.home_of_id(pair.later), pair.later) == "waiting"


async def test_nothing_is_left_behind(store: Store) -> None:
    pair = await follow_waiting_job(store)
    await pair.flows.driver(0).fail(pair.first)
    await pair.flows.ship()
    driver = pair.flows.driver(0)
    base = driver.partition.base
    assert await store.server.call("SMEMBERS", base + "followed") == [pair.first.encode()]

    await driver.remove(pair.first)

    assert (
        await store.server.call("EXISTS", base + "followed", base + "extras", base + "job:" + pair.first) == 0
    )
    assert await check_integrity(driver.partition) == []


async def test_a_worker_asks_for_followers_with_a_command_that_it_sends_anyway(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    pair = Pair(flow_driver)
    await pair.enqueue_first()
    await store.server.call("CONFIG", "RESETSTAT")

    await flow_driver.driver(0).complete_together()

    usage = (await store.server.call("INFO", "commandstats")).decode()
    calls = {
        line.split(":")[0].removeprefix("cmdstat_"): int(line.split("calls=")[1].split(",")[0])
        for line in usage.splitlines()
        if "calls=" in line
    }
    assert calls.get("sismember", 0) == 0
    assert calls["exists"] <= 3, calls
