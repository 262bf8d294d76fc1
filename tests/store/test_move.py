"""The specification of moving: what closed partitions refuse and give away, what new ones hold and let go, what is left in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from partition_driver import PartitionDriver

from qbull.config import Keep, QueueSettings
from qbull.core.ids import new_token
from qbull.core.layout import GENERATION_SPAN_PARTITIONS, Generation, Layout
from qbull.core.record import Body, pack
from qbull.core.route import PARTITION_LANE, digest
from qbull.errors import Conflict, ServerRefused
from qbull.produce.client import Client
from qbull.produce.router import PlacedJob
from qbull.store.delivery import Delivery
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs.closed_partition import PartitionClosed
from qbull.store.verbs.layout import (
    MAX_DRAINING_GENERATIONS,
    change_layout,
    close_partition,
    follow_successor,
    repartition,
)
from qbull.store.verbs.move import PartitionMoves
from qbull.store.verbs.partition import NewJob, Partition

HOUR = 3_600_000


@dataclass
class MovingQueue:
    """A queue of one partition at first, whose number changes; driven by hand."""

    store: Store
    settings: QueueSettings

    @classmethod
    async def open(cls, store: Store, partitions: int = 1, **settings: Any) -> MovingQueue:
        moving = cls(store, QueueSettings("q", partitions, **{"order": "key", **settings}))
        await store.register(moving.settings, ["task"])
        return moving

    @property
    def moves(self) -> PartitionMoves:
        return PartitionMoves(self.store, self.settings)

    @property
    def old(self) -> Partition:
        return self.partition(0)

    async def layout(self) -> Layout:
        return await self.store.layout(self.settings)

    def partition(self, number: int) -> Partition:
        return self.store.partition(self.settings, number)

    async def change(self, partitions: int) -> Layout:
        return await repartition(self.store, self.settings, partitions)

    async def home(self, route: str) -> Partition:
        """Where a key, or an id without one, belongs now."""
        return self.partition((await self.layout()).home(digest(route)))

    def job(self, id: str, key: str | None = None, when: int | str = 0) -> NewJob:
        lane = digest(key) if key is not None and self.settings.lane_limit else b""
        if self.settings.order == "partition":
            lane = PARTITION_LANE
        return NewJob(id, when, pack(Body("task", b"{}", key), priority=5, lane=lane))

    async def put(self, partition: Partition, *ids: str, key: str | None = None, when: int | str = 0) -> None:
        assert await partition.enqueue([self.job(id, key, when) for id in ids]) == set()

    def driver(self, partition: Partition) -> PartitionDriver:
        driver = PartitionDriver(self.store, self.settings)
        driver.partition = partition
        return driver

    async def fetch(self, partition: Partition) -> list[Delivery]:
        return await self.driver(partition).fetch()

    async def run(self, partition: Partition) -> list[str]:
        """Run all that can run in a partition; what did, in order."""
        ran = []
        while deliveries := await self.fetch(partition):
            for delivery in deliveries:
                ran += [job.id.decode() for job in delivery.jobs()]
                await self.driver(partition).finish(delivery)
        return ran

    async def let_time_pass(self, partition: Partition) -> None:
        ids = await self.store.server.call("ZRANGE", partition.base + "delayed", 0, -1)
        await self.driver(partition).let_time_pass(*(id.decode() for id in ids))
        await partition.promote()

    async def names(self, partition: Partition) -> set[str]:
        found = await self.store.server.call("KEYS", partition.base + "*")
        return {name.decode().removeprefix(partition.base) for name in found if b"}:stats:" not in name}


# Closed partitions.


async def test_a_closed_partition_takes_nothing_in_and_says_where_it_goes(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", key="a")
    await moving.change(3)

    with pytest.raises(PartitionClosed):
        await moving.old.enqueue([moving.job("n1")])
    with pytest.raises(PartitionClosed) as closed:
        await moving.old.enqueue([moving.job("a1", "a"), moving.job("a2", "a"), moving.job("a1", "a")])

    assert closed.value.known == {0, 2}
    assert (closed.value.successor.number, closed.value.successor.partitions) == (1, 3)
    assert (await inspect.count(moving.old)).waiting == 1


async def test_a_producer_goes_where_its_job_belongs_now(store: Store, server_url: str) -> None:
    moving = await MovingQueue.open(store)
    client = Client(server_url, "test")
    await client.router.register(moving.settings, ())
    await moving.change(3)

    placed = PlacedJob(0, moving.job("a1", "a"), digest("a"), has_custom_id=True)
    one = await client.router.send_one(moving.settings, placed, None)
    many = await client.router.send(moving.settings, [placed], None)

    assert (one, many) == (True, [("a1", False)])
    assert await (await moving.home("a")).has(["a1"]) == {"a1"}
    await client.close()


async def test_one_that_was_closed_before_keeps_saying_what_it_said(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.change(3)

    assert await close_partition(moving.old, Generation(7, 9)) == Generation(1, 3)


async def test_what_would_be_admitted_to_a_closed_one_is_left_to_the_mover(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "dead", key="a")
    await moving.driver(moving.old).fail("dead")
    await moving.put(moving.old, "later", key="b", when=HOUR)
    await moving.change(2)

    assert await moving.driver(moving.old).retry("dead") == ["retried"]
    assert await moving.old.promote_one(new_token(), "later") == "promoted"
    await moving.old.promote()

    assert await moving.run(moving.old) == []
    assert await moving.moves.move_jobs(await moving.layout(), 0) == 2
    assert await moving.old.has(["dead", "later"]) == set()
    assert await (await moving.home("a")).has(["dead"]) == {"dead"}
    assert await (await moving.home("b")).has(["later"]) == {"later"}


async def test_a_job_that_waits_for_its_next_attempt_stays_with_its_lane(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", "a2", key="a")
    [delivery] = await moving.fetch(moving.old)
    await moving.driver(moving.old).settle(delivery, 0, "delay", HOUR)
    await moving.change(2)

    assert await moving.moves.move_jobs(await moving.layout(), 0) == 0
    await moving.let_time_pass(moving.old)

    assert await moving.run(moving.old) == ["a1", "a2"]


# Jobs on their way.


async def test_delayed_jobs_keep_what_they_are(store: Store) -> None:
    moving = await MovingQueue.open(store, order=None)
    await moving.put(moving.old, *(f"j{n}" for n in range(1200)), when=HOUR)
    before = await inspect.find(moving.old, "j7")
    await store.server.call("SADD", moving.old.base + "extras", "j7")
    await store.server.call("HSET", moving.old.base + "job:j7", "progress", "33")
    await store.server.call("RPUSH", moving.old.base + "log:j7", "one", "two")
    await moving.change(2)

    assert await moving.moves.move_jobs(await moving.layout(), 0) == 1200

    new = await moving.home("j7")
    after = await inspect.find(new, "j7")
    assert before is not None and after is not None
    assert (after.record, after.due_ms) == (before.record, before.due_ms)
    assert await store.server.call("HGETALL", new.base + "job:j7") == [b"progress", b"33"]
    assert await store.server.call("LRANGE", new.base + "log:j7", 0, -1) == [b"one", b"two"]
    assert (await inspect.count(moving.old)).total == 0
    assert await moving.names(moving.old) <= {"index", "kept", "stats"}


async def test_a_job_that_has_arrived_does_not_arrive_again_although_it_has_run_and_is_forgotten(
    store: Store,
) -> None:
    moving = await MovingQueue.open(store, order=None, keep=Keep(completed=0, failed=0))
    await moving.put(moving.old, "j1", when=HOUR)
    layout = await moving.change(2)
    _, _, number, id, due, record, *_ = await store.server.script("move_out", moving.old.base, 0, 10)
    new = await moving.home("j1")
    arrive = ("move_in", new.base, 0, number, id, due, record, "", 0, 0, 0)
    await store.server.script(*arrive)  # and whoever brought it dies
    await moving.let_time_pass(new)
    ran = await moving.run(new)

    await store.server.script(*arrive)
    brought = await moving.moves.move_jobs(layout, 0)

    assert ran == ["j1"]
    assert brought == 1
    assert await moving.old.has(["j1"]) == await new.has(["j1"]) == set()


async def test_nor_does_it_when_the_number_was_changed_in_between(store: Store) -> None:
    moving = await MovingQueue.open(store, order=None, keep=Keep(completed=0, failed=0))
    await moving.put(moving.old, "j1", when=HOUR)
    await moving.change(2)
    _, _, number, id, due, record, *_ = await store.server.script("move_out", moving.old.base, 0, 10)
    between = await moving.home("j1")
    await store.server.script("move_in", between.base, 0, number, id, due, record, "", 0, 0, 0)
    await moving.let_time_pass(between)
    ran = await moving.run(between)
    layout = await moving.change(3)

    late = await store.server.script("move_in", between.base, 0, number, id, due, record, "", 0, 0, 0)
    await moving.moves.move_jobs(layout, 0)

    assert ran == ["j1"]
    assert late == b"closed 2 3"
    assert await (await moving.home("j1")).has(["j1"]) == set()


async def test_a_job_arrives_although_a_failover_has_lost_the_number_of_the_one_before(store: Store) -> None:
    """It got that number again, was taken for one that had arrived before, and was gone."""
    moving = await MovingQueue.open(store, 2, order=None)
    await moving.put(moving.old, "first", when=HOUR)
    await moving.put(moving.old, "second", when=2 * HOUR)
    layout = await moving.change(1)
    new = moving.partition(layout.current.numbers[0])
    _, _, number, id, due, record, *_ = await store.server.script("move_out", moving.old.base, 0, 1)
    assert await store.server.script("move_in", new.base, 0, number, id, due, record, "", 0, 0, 0) == 1
    await store.server.script("move_ack", moving.old.base, id)

    await store.server.call("HDEL", moving.old.base + "kept", "departed")
    await moving.moves.move_jobs(layout, 0)

    assert await new.has(["first", "second"]) == {"first", "second"}


async def test_a_mover_that_finds_the_new_partition_closed_brings_it_further(store: Store) -> None:
    moving = await MovingQueue.open(store, order=None)
    await moving.put(moving.old, "j1", "j2", "j3", when=HOUR)
    stale = await moving.change(2)
    await moving.change(3)

    assert await moving.moves.move_jobs(stale, 0) == 3

    for id in ("j1", "j2", "j3"):
        assert await (await moving.home(id)).has([id]) == {id}


async def test_nobody_changes_a_job_that_is_on_its_way(store: Store, server_url: str) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "j1", key="a", when=HOUR)
    await moving.change(2)
    await store.server.script("move_out", moving.old.base, 0, 10)

    promoted = await moving.old.promote_one(new_token(), "j1")
    removed = await moving.old.remove(new_token(), [("j1", b"")])
    cancelled = await moving.old.cancel(b"", ["j1"])
    await moving.let_time_pass(moving.old)

    assert (promoted, removed, cancelled) == ("moving", ["moving"], ["moving"])
    found = await inspect.find(moving.old, "j1")
    assert found is not None and found.state == "delayed"
    assert await moving.moves.move_jobs(await moving.layout(), 0) == 1


# Lanes in new partitions.


async def test_a_lane_is_held_until_the_old_partition_has_nothing_of_it(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", "a2", key="a")
    layout = await moving.change(2)
    new = await moving.home("a")
    await moving.put(new, "a3", "a4", key="a")

    held = await moving.moves.free_lanes(layout, new.number)
    first = await moving.run(new)
    old = await moving.run(moving.old)
    let_go = await moving.moves.free_lanes(layout, new.number)

    assert (held, first) == ((1, 0), [])
    assert old == ["a1", "a2"]
    assert let_go == (0, 1)
    assert await moving.run(new) == ["a3", "a4"]


async def test_a_lane_that_was_let_go_is_not_held_again_while_it_has_jobs(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "z", key="somebody")
    layout = await moving.change(2)
    new = await moving.home("a")
    await moving.put(new, "a1", key="a")
    await moving.moves.free_lanes(layout, new.number)

    await moving.put(new, "a2", key="a")

    assert await moving.run(new) == ["a1", "a2"]


async def test_only_lanes_that_are_ahead_are_held_once_these_are_known(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", key="a")
    layout = await moving.change(2)
    await moving.moves.announce_lanes(layout)

    for key in ("a", "b", "c"):
        await moving.put(await moving.home(key), f"{key}2", key=key)
    ran = [id for number in layout.current.numbers for id in await moving.run(moving.partition(number))]

    assert sorted(ran) == ["b2", "c2"]


async def test_who_learns_too_late_changes_nothing(store: Store) -> None:
    moving = await MovingQueue.open(store)
    layout = await moving.change(2)
    new = await moving.home("a")
    assert await moving.moves.free_all_lanes(layout, new.number) == 0

    late = await store.server.script("move_announce_lanes", new.base, 1, digest("a"))
    await moving.put(new, "a1", key="a")

    assert late == 0
    assert await moving.run(new) == ["a1"]


async def test_a_lane_waits_for_all_older_generations(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", key="a")
    await moving.change(2)
    between = await moving.home("a")
    await moving.put(between, "a2", key="a")
    layout = await moving.change(3)
    new = await moving.home("a")
    await moving.put(new, "a3", key="a")

    ran = []
    for partition in (new, between, moving.old, new, between, new):
        await moving.moves.free_lanes(layout, between.number)
        await moving.moves.free_lanes(layout, new.number)
        ran += await moving.run(partition)

    assert ran == ["a1", "a2", "a3"]


async def test_the_lane_of_a_whole_partition_waits_for_those_its_keys_come_from(store: Store) -> None:
    moving = await MovingQueue.open(store, partitions=2, order="partition")
    await moving.put(moving.partition(0), "even")
    await moving.put(moving.partition(1), "odd")
    layout = await moving.change(4)
    new = [moving.partition(number) for number in layout.current.numbers]
    for place, partition in enumerate(new):
        await moving.put(partition, f"n{place}")

    assert await moving.run(moving.partition(0)) == ["even"]
    for partition in new:
        await moving.moves.free_lanes(layout, partition.number)

    assert [await moving.run(partition) for partition in new] == [["n0"], [], ["n2"], []]


async def test_removing_a_job_lets_no_held_lane_go(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", key="a")
    await moving.change(2)
    new = await moving.home("a")
    await moving.put(new, "a2", "a3", key="a")

    assert await new.remove(new_token(), [("a2", b"")]) == ["removed"]

    assert await moving.run(new) == []
    assert await moving.run(moving.old) == ["a1"]
    await moving.moves.all_steps()
    assert await moving.run(new) == ["a3"]


async def test_a_delayed_job_that_is_due_waits_with_its_lane(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", key="a")
    await moving.change(2)
    new = await moving.home("a")
    await moving.put(new, "a2", key="a", when=HOUR)

    await moving.let_time_pass(new)

    assert await moving.run(new) == []
    assert await moving.run(moving.old) == ["a1"]
    await moving.moves.all_steps()
    assert await moving.run(new) == ["a2"]


# The layout.


async def test_a_change_that_nobody_ended_is_ended_by_the_next_one_who_comes(store: Store) -> None:
    moving = await MovingQueue.open(store, partitions=2)
    layout = await moving.layout()
    await change_layout(store, moving.settings, layout, layout.begins(5))
    await close_partition(moving.partition(1), Generation(1, 5))

    followed = await follow_successor(store, moving.settings, Generation(1, 5))

    assert (followed.generation, followed.partitions, followed.coming) == (1, 5, None)
    with pytest.raises(PartitionClosed):
        await moving.partition(0).enqueue([moving.job("j1")])


async def test_a_worker_or_the_command_ends_it_too(store: Store) -> None:
    moving = await MovingQueue.open(store, partitions=2)
    layout = await moving.layout()
    await change_layout(store, moving.settings, layout, layout.begins(5))

    await moving.moves.all_steps()

    assert (await moving.layout()).partitions == 5


async def test_two_who_want_different_numbers_both_get_them_one_after_the_other(store: Store) -> None:
    moving = await MovingQueue.open(store, partitions=2)
    layout = await moving.layout()
    await change_layout(store, moving.settings, layout, layout.begins(5))

    layout = await moving.change(3)

    assert [older.partitions for older in layout.older] == [2, 5]
    assert layout.partitions == 3


async def test_a_layout_that_a_failover_has_lost_is_known_by_the_closed_partitions(store: Store) -> None:
    moving = await MovingQueue.open(store, partitions=2)
    await moving.change(5)
    await moving.change(3)
    await store.server.call("HDEL", store.names.settings("q"), "layout")

    for number in (0, GENERATION_SPAN_PARTITIONS):
        with pytest.raises(PartitionClosed) as closed:
            await moving.partition(number).enqueue([moving.job("j1")])
        layout = await follow_successor(store, moving.settings, closed.value.successor)

    assert (layout.generation, layout.partitions) == (2, 3)


async def test_a_worker_finds_out_too_that_it_was_lost(store: Store) -> None:
    moving = await MovingQueue.open(store, partitions=2)
    await moving.change(5)
    await store.server.call("HDEL", store.names.settings("q"), "layout")
    await moving.moves.announce_lanes(await moving.layout())

    assert (await moving.layout()).partitions == 5


async def test_a_partition_that_was_opened_by_a_failover_is_closed_again(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", key="a")
    layout = await moving.change(2)
    await store.server.call("HDEL", moving.old.base + "index", "\n")

    await moving.moves.retire(layout)

    with pytest.raises(PartitionClosed):
        await moving.old.enqueue([moving.job("j1")])


async def test_only_so_many_changes_are_worked_off_at_a_time(store: Store) -> None:
    moving = await MovingQueue.open(store)
    for n in range(MAX_DRAINING_GENERATIONS):
        layout = await moving.layout()
        await moving.put(moving.partition(layout.home(digest("a"))), f"a{n}", key="a")
        await moving.change(n + 2)

    with pytest.raises(Conflict, match='queue "q": 8 earlier changes are still being worked off'):
        await moving.change(20)


# What is left in the end.


async def test_a_generation_goes_step_by_step_and_leaves_its_mark_and_what_was_counted(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", "a2", key="a")
    await moving.change(2)

    busy = await moving.moves.retire(await moving.layout())
    await moving.run(moving.old)
    drained = await moving.moves.retire(await moving.layout())
    kept = await moving.moves.retire(drained)
    await moving.old.clean(new_token(), "completed", 0, 100)
    gone = await moving.moves.retire(kept)
    forgotten = await moving.moves.retire(gone)

    assert [layout.older[0].state for layout in (busy, drained, kept, gone)] == [
        "draining", "drained", "drained", "gone",
    ]  # fmt: skip
    assert forgotten.older == ()
    assert forgotten.past["completed"] == 2
    assert {name for name in await moving.names(moving.old) if not name.startswith("once:")} == {"index"}
    with pytest.raises(PartitionClosed):
        await moving.old.enqueue([moving.job("j1")])


async def test_the_oldest_goes_first(store: Store) -> None:
    moving = await MovingQueue.open(store)
    await moving.put(moving.old, "a1", key="a")
    await moving.run(moving.old)
    await moving.change(2)
    await moving.change(3)

    for _ in range(5):
        layout = await moving.moves.retire(await moving.layout())

    assert [(older.number, older.state) for older in layout.older] == [(0, "drained"), (1, "drained")]


async def test_kept_jobs_of_old_partitions_make_room_for_new_ones(store: Store) -> None:
    moving = await MovingQueue.open(store, order=None, keep=Keep(completed=10))
    await moving.put(moving.old, *(f"old{n}" for n in range(10)))
    await moving.run(moving.old)
    layout = await moving.change(2)

    counts = []
    for number in layout.current.numbers:
        await moving.moves.retire(await moving.moves.retire(layout))
        counts.append((await inspect.count(moving.old)).completed)
        await moving.put(moving.partition(number), *(f"new{number}-{n}" for n in range(10)))
        await moving.run(moving.partition(number))
    await moving.moves.retire(await moving.layout())

    assert counts == [10, 10]
    assert (await inspect.count(moving.old)).completed == 0


async def test_a_partition_that_refuses_what_is_brought_holds_up_none_for_the_others(store: Store) -> None:
    moving = await MovingQueue.open(store)
    ids = [f"j{n}" for n in range(10)]
    await moving.put(moving.old, *ids, when=HOUR)
    layout = await moving.change(2)
    refusing, other = (moving.partition(number) for number in layout.current.numbers)
    await store.server.call("SET", refusing.base + "arrivals", "no hash")

    with pytest.raises(ServerRefused, match="wrong type"):
        await moving.moves.move_jobs(layout, 0)

    stay, came = await moving.old.has(ids), await other.has(ids)
    assert stay and came
    assert stay | came == set(ids)
    assert not stay & came
    await store.server.call("DEL", refusing.base + "arrivals")
    await moving.moves.move_jobs(layout, 0)
    assert await refusing.has(ids) == stay
