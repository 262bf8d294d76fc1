"""Changing the number of partitions against a small model: any sequence of steps, by anybody, cut off anywhere.

Producers know old layouts, movers die between two steps or come back after others have taken over, changes are begun and not
ended. Every job must be handed over, never when it has ended, never beside another of its key, and in order.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from partition_driver import CRASHED, DONE

from conftest import every_fault
from qbull.config import Keep, Lane, QueueSettings
from qbull.core.ids import new_token
from qbull.core.layout import Generation, Layout
from qbull.core.record import Body, Ending, append_ending, pack, repack
from qbull.core.route import PARTITION_LANE, digest
from qbull.produce.client import Client
from qbull.produce.router import PlacedJob
from qbull.store.delivery import Delivery
from qbull.store.read import inspect
from qbull.store.verbs.layout import change_layout, close_partition, repartition
from qbull.store.verbs.move import PartitionMoves
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.partition import JobToRetry, NewJob

KEYS = st.sampled_from(["a", "a", "b", "c", "d", None])
COUNTS = st.sampled_from([1, 2, 3, 4, 6])
SHAPES: list[dict[str, Any]] = [
    {"order": "key"},
    {"order": "key", "keep": Keep(completed=0, failed=1000)},
    {"order": "key", "on_failed": "halt"},
    {"order": "partition"},
    {"lane": Lane(limit=1)},
    {"lane": Lane(limit=2)},
    {"keep": Keep(completed=0, failed=1000)},
]


class Died(Exception):
    """The process of a mover ends here."""


class MortalMoves(PartitionMoves):
    """Dies before it makes a call; and may come back from the dead with that call."""

    def __init__(self, client: Client, of: QueueSettings, dies_before: str) -> None:
        super().__init__(client.store, of)
        self._dies_before = dies_before
        self.last_call: tuple[Any, ...] | None = None

    async def _script(self, verb: str, number: int, *arguments: Any) -> Any:
        if verb == self._dies_before:
            self.last_call = (verb, number, *arguments)
            raise Died
        return await super()._script(verb, number, *arguments)

    async def wake_up(self) -> None:
        assert self.last_call is not None
        await super()._script(*self.last_call)


@dataclass
class Job:
    id: str
    key: str | None
    lane: str | None
    placed: PlacedJob
    ordered: bool
    """It takes its place in its lane when it is enqueued, not later."""
    state: str = "waiting"


@dataclass
class Held:
    worker: str
    number: int
    delivery: Delivery
    jobs: list[Job]
    at: int = 0
    live: bool = True


@dataclass
class Model:
    jobs: dict[str, Job] = field(default_factory=dict)
    order: dict[str, list[Job]] = field(default_factory=lambda: defaultdict(list))
    busy: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Of each lane the jobs that are handed over, wait for their next attempt, or halt it."""

    def accept(self, job: Job) -> None:
        self.jobs[job.id] = job
        if job.lane is not None and job.ordered:
            self.order[job.lane].append(job)

    def hand_over(self, jobs: list[Job], limit: int, *, in_order: bool) -> None:
        for job in jobs:
            assert job.state == "waiting", f"{job.id} was handed over while {job.state}"
        for lane in {job.lane for job in jobs} - {None}:
            mine = [job for job in jobs if job.lane == lane]
            others = self.busy[lane] - {job.id for job in mine}
            assert len(others) < limit, f"{[job.id for job in mine]} were handed over beside {others}"
            if in_order:
                expected = [job.id for job in self.order[lane]]
                got = [job.id for job in mine if job.ordered]
                assert got == expected[: len(got)], f"handed over {got}, the lane has {expected}"
            self.busy[lane] |= {job.id for job in mine}
        for job in jobs:
            job.state = "active"

    def give_back(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.state = "waiting"
            if job.lane is not None:
                self.busy[job.lane].discard(job.id)

    def wait_for_next_attempt(self, job: Job, *, leaves_lane: bool) -> None:
        """It keeps its lane busy, unless the lane has no order."""
        job.state = "delayed"
        if leaves_lane and job.lane is not None:
            self.busy[job.lane].discard(job.id)
            if job.ordered:
                self.order[job.lane].remove(job)
                job.ordered = False

    def end(self, job: Job, state: str, *, halts: bool) -> None:
        job.state = state
        if job.lane is not None and not halts:
            self.busy[job.lane].discard(job.id)
            if job.ordered:
                self.order[job.lane].remove(job)


class Repartitioned(RuleBasedStateMachine):
    url: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.held: list[Held] = []
        self.zombies: list[MortalMoves] = []

    def do(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    @initialize(shape=st.sampled_from(SHAPES), count=COUNTS)
    def begin(self, shape: dict[str, Any], count: int) -> None:
        self.settings = QueueSettings("q", partitions=count, **shape)
        self.clients = [Client(self.url, "moved") for _ in range(3)]
        self.store = self.clients[0].store
        self.do(self.store.open())
        self.do(self.store.server.call("FLUSHDB"))
        for client in self.clients:
            self.do(client.router.register(self.settings, ()))
        self.moves = PartitionMoves(self.store, self.settings)
        self.limit = self.settings.lane_limit
        self.halts = self.settings.on_failed == "halt"

    def layout(self) -> Layout:
        found: Layout = self.do(self.store.layout(self.settings))
        return found

    def numbers(self) -> list[int]:
        return [number for generation in self.layout().busy for number in generation.numbers]

    # Producers, which know the layout as it was when they last came to a closed partition.

    @rule(who=st.integers(0, 2), keys=st.lists(KEYS, min_size=1, max_size=5), later=st.booleans())
    def enqueue(self, who: int, keys: list[str | None], later: bool) -> None:
        client = self.clients[who]
        jobs = [self.make(client, key, later) for key in keys]
        sent = self.do(client.router.send(self.settings, [job.placed for job in jobs], None))
        assert [created for _, created in sent] == [True] * len(jobs)
        for job in jobs:
            self.model.accept(job)

    def make(self, client: Client, key: str | None, later: bool) -> Job:
        layout = self.do(client.router.register(self.settings, ()))
        id = f"j{len(self.model.jobs) + self.made:05d}"
        self.made += 1
        lane, named = b"", None
        if (
            self.settings.order == "partition"
        ):  # of the order in a partition, what is promised across a change: a key's
            lane, named = PARTITION_LANE, key
        elif key is not None and self.limit:
            lane, named = digest(key), key
        together = digest(key) if key is not None and self.limit else None
        record = pack(Body("task", b"{}", key), priority=5, lane=lane)
        placed = PlacedJob(
            layout.home(together or digest(id)),
            NewJob(id, 3_600_000 if later else 0, record),
            together,
            has_custom_id=True,
        )
        return Job(id, key, named, placed, ordered=not later, state="delayed" if later else "waiting")

    made = 0

    @precondition(lambda self: any(self.is_there(job) for job in self.model.jobs.values()))
    @rule(who=st.integers(0, 2), data=st.data())
    def enqueue_again(self, who: int, data: st.DataObject) -> None:
        """The reply was lost, or somebody has chosen the same id."""
        job = data.draw(st.sampled_from([job for job in self.model.jobs.values() if self.is_there(job)]))
        sent = self.do(self.clients[who].router.send(self.settings, [job.placed], None))
        assert sent == [(job.id, False)]

    def is_there(self, job: Job) -> bool:
        return job.state != "completed" or self.settings.keep.completed != 0

    # Workers.

    @rule(worker=st.sampled_from(["w1", "w2"]), which=st.integers(0, 100), count=st.integers(1, 4))
    def fetch(self, worker: str, which: int, count: int) -> None:
        numbers = self.numbers()
        self.fetch_from(worker, numbers[which % len(numbers)], count)

    def fetch_from(self, worker: str, number: int, count: int) -> bool:
        partition = self.store.partition(self.settings, number)
        streams = self.do(self.store.streams([partition]))
        self.do(self.store.ensure_groups(streams))
        deliveries = self.do(self.store.fetch(streams, worker, count, None))
        for delivery in deliveries:
            jobs = [self.model.jobs[each.id.decode()] for each in delivery.jobs()]
            in_order = self.settings.order is not None
            self.model.hand_over(jobs, self.limit or 10**9, in_order=in_order)
            self.held.append(Held(worker, number, delivery, jobs))
        return bool(deliveries)

    @precondition(lambda self: any(h.live for h in self.held))
    @rule(data=st.data(), word=st.sampled_from(["done", "done", "done", "delay", "delay_now", "dead"]))
    def settle(self, data: st.DataObject, word: str) -> None:
        self.settle_next(data.draw(st.sampled_from([h for h in self.held if h.live])), word)

    def settle_next(self, held: Held, word: str) -> None:
        job, delivery = held.jobs[held.at], held.delivery
        delivered = delivery.job(held.at)
        id, record, position = delivered.id, delivered.record, delivered.position
        outcomes = PartitionOutcomes()
        if word.startswith("delay"):
            again = repack(record, Body("task", b"{}", job.key, attempt=2))
            outcomes.delay(position, id, again, 0 if word == "delay_now" else 3_600_000)
        elif word == "dead":
            outcomes.dead(position, id, record, append_ending(Ending(1, 1.0, "w1", error="broken")))
        elif delivery.lane:
            outcomes.done_in_train(position, id, record, DONE)
        else:
            outcomes.done(delivery.level, delivery.entry, id, record + DONE)
        partition = self.store.partition(self.settings, held.number)
        assert self.do(partition.settle(outcomes)) == [], "an outcome was refused"
        held.at += 1
        held.live = held.at < len(held.jobs)
        if word.startswith("delay"):
            leaves_lane = word == "delay" and self.settings.order is None
            self.model.wait_for_next_attempt(job, leaves_lane=leaves_lane)
            if word == "delay_now":
                job.state = "waiting"
            if not leaves_lane:
                self.go_back(held)
        elif word == "dead":
            halts = self.halts and job.lane is not None
            self.model.end(job, "failed", halts=halts)
            if halts:
                self.go_back(held)
        else:
            self.model.end(job, "completed", halts=False)

    def go_back(self, held: Held) -> None:
        self.model.give_back(held.jobs[held.at :])
        held.live = False

    @rule(worker=st.sampled_from(["w1", "w2"]))
    def crash(self, worker: str) -> None:
        for number in self.numbers():
            partition = self.store.partition(self.settings, number)
            while self.do(partition.reclaim(worker, CRASHED, [])).more:
                pass
        for held in self.held:
            if held.live and held.worker == worker:
                self.go_back(held)

    @precondition(lambda self: any(job.state == "failed" for job in self.model.jobs.values()))
    @rule(data=st.data())
    def send_round_again(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from([job for job in self.model.jobs.values() if job.state == "failed"]))
        partition, found = self.do(self.clients[0].find(self.settings, job.id))
        words = self.do(partition.retry(new_token(), [JobToRetry(job.id, found.position, found.again())]))
        assert words == ["retried"]
        job.state = "waiting"
        if not self.halts:
            job.ordered = False  # it goes to the end of its lane, wherever that is

    @rule()
    def time_passes(self) -> None:
        """What is delayed is due now; where a partition is closed, it waits for its mover."""
        for number in self.numbers():
            partition = self.store.partition(self.settings, number)
            ids = self.do(self.store.server.call("ZRANGE", partition.base + "delayed", 0, -1))
            for id in ids:
                self.do(self.store.server.call("ZADD", partition.base + "delayed", "XX", 1, id))
                self.model.jobs[id.decode()].state = "waiting"
            self.do(partition.promote())

    # The number of partitions changes.

    @rule(count=COUNTS)
    def change_the_number(self, count: int) -> None:
        if len(self.layout().draining) < 4:
            self.do(repartition(self.store, self.settings, count))

    @rule(count=COUNTS, closed=st.integers(0, 6))
    def change_it_and_die(self, count: int, closed: int) -> None:
        layout = self.layout()
        if layout.coming is None and len(layout.draining) < 4 and count != layout.partitions:
            self.do(change_layout(self.store, self.settings, layout, layout.begins(count)))
            for number in layout.current.numbers[:closed]:
                partition = self.store.partition(self.settings, number)
                self.do(close_partition(partition, Generation(layout.generation + 1, count)))

    @rule()
    def all_steps(self) -> None:
        self.do(self.moves.all_steps())

    @rule(which=st.integers(0, 100))
    def bring(self, which: int) -> None:
        layout = self.layout()
        old = [number for generation in layout.generations[:-1] for number in generation.numbers]
        if old:
            self.do(self.moves.move_jobs(layout, old[which % len(old)]))

    @rule(
        which=st.integers(0, 100),
        before=st.sampled_from(["move_in", "move_ack", "move_free_lanes", "move_free_all_lanes"]),
    )
    def move_and_die(self, which: int, before: str) -> None:
        mortal = MortalMoves(self.clients[1], self.settings, before)
        layout = self.layout()
        numbers = [number for generation in layout.generations for number in generation.numbers]
        number = numbers[which % len(numbers)]
        try:
            if number not in layout.current.numbers:
                self.do(mortal.move_jobs(layout, number))
            if layout.generation and self.do(mortal.free_all_lanes(layout, number)) is None:
                self.do(mortal.free_lanes(layout, number))
        except Died:
            self.zombies.append(mortal)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def a_mover_wakes_up(self, data: st.DataObject) -> None:
        """It was thought dead, and makes the call that it was about to make then."""
        zombie = data.draw(st.sampled_from(self.zombies))
        self.zombies.remove(zombie)
        self.do(zombie.wake_up())

    @rule()
    def learn(self) -> None:
        self.do(self.moves.announce_lanes(self.layout()))

    @rule(which=st.integers(0, 100))
    def let_go(self, which: int) -> None:
        layout = self.layout()
        numbers = self.numbers()
        if layout.generation:
            self.do(self.moves.free_lanes(layout, numbers[which % len(numbers)]))

    @rule()
    def retire(self) -> None:
        self.do(self.moves.retire(self.layout()))

    # The end.

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self.run_to_the_end()
        finally:
            self.loop.close()

    def run_to_the_end(self) -> None:
        assert self.do(every_fault(self.store)) == []
        for zombie in self.zombies:
            self.do(zombie.wake_up())
        for worker in ("w1", "w2"):
            self.crash(worker)
        while any(job.state == "failed" for job in self.model.jobs.values()) and self.halts:
            self.redrive_all()
            self.run_dry()
        self.run_dry()
        left = [job.id for job in self.model.jobs.values() if job.state not in ("completed", "failed")]
        assert left == [], f"{left} were never handed over"
        assert self.do(every_fault(self.store)) == []
        layout = self.layout()
        assert layout.settled, f"not worked off: {layout}"
        self.clean_up(layout)
        for client in self.clients:
            self.do(client.close())

    def redrive_all(self) -> None:
        for job in self.model.jobs.values():
            if job.state == "failed":
                partition, found = self.do(self.clients[0].find(self.settings, job.id))
                assert self.do(
                    partition.retry(new_token(), [JobToRetry(job.id, found.position, found.again())])
                ) == ["retried"]
                job.state = "waiting"

    def run_dry(self) -> None:
        quiet = 0
        while quiet < 2:
            moved = self.do(self.moves.all_steps()) or 0
            self.time_passes()
            busy = [self.fetch_from("w3", number, 100) for number in self.numbers()]
            for held in [h for h in self.held if h.live]:
                while held.live:
                    self.settle_next(held, "done")
            quiet = 0 if moved or any(busy) else quiet + 1

    def clean_up(self, layout: Layout) -> None:
        """When nothing is kept any more, only the marks of old partitions are left, and counts that expire."""
        for number in [n for generation in layout.generations for n in generation.numbers]:
            partition = self.store.partition(self.settings, number)
            for state in ("completed", "failed"):
                self.do(partition.clean(new_token(), state, 0, 10_000))
        for _ in range(3 * len(layout.older) + 1):
            self.do(self.moves.retire(self.layout()))
        layout = self.layout()
        assert layout.older == ()
        totals = dict(layout.past)
        for number in layout.current.numbers:
            counts = self.do(inspect.count(self.store.partition(self.settings, number)))
            totals["completed"] = totals.get("completed", 0) + counts.totals.get("completed", 0)
        done = sum(job.state == "completed" for job in self.model.jobs.values())
        assert totals.get("completed", 0) == done
        current = {self.store.names.partition("q", number) for number in layout.current.numbers}
        names = [
            name.decode("utf-8", "replace") for name in self.do(self.store.server.call("KEYS", "{moved:q:*"))
        ]
        left = {
            name.rpartition("}:")[2]
            for name in names
            if name.rpartition("}:")[0] + "}:" not in current
            and not any(expiring in name for expiring in ("stats:", "errors:", "once:"))
        }
        assert left <= {"index"}


@pytest.mark.timeout(900)
def test_any_sequence_of_steps_keeps_every_job_and_every_order(server_url: str) -> None:
    Repartitioned.url = server_url.replace("db=0", "db=2")

    run_state_machine_as_test(
        Repartitioned,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            deadline=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
