"""The engine against a small model: any sequence of verbs, any crash in between, must end with every job done in order."""

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
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from partition_driver import CRASHED, PartitionDriver, ids_of

from conftest import every_fault
from qbull.config import Keep, Lane
from qbull.core.ids import new_token
from qbull.core.record import Body, pack
from qbull.core.route import unique_name_lane
from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.store.verbs.partition import NewJob
from qbull.store.verbs.unique import UniqueJob

KEYS = st.sampled_from(["a", "a", "a", "b", None])
WORKERS = st.sampled_from(["w1", "w2"])
SHAPES: list[dict[str, Any]] = [
    {},
    {"order": "key"},
    {"order": "key", "on_failed": "halt"},
    {"order": "partition"},
    {"lane": Lane(limit=1)},
    {"lane": Lane(limit=2)},
    {"order": "key", "keep": Keep(completed=0, failed=1000)},
]
NAMES = [
    "plain",
    "by key",
    "by key, halting",
    "by partition",
    "one of a key",
    "two of a key",
    "by key, none kept",
]


def is_plain(job: NewJob) -> bool:
    """Whether put takes it: as urgent as others, nobody is told of all that it goes through, no lane."""
    return job.record[1] == 5 and job.record[2] < 4 and job.record[10] == 0


@dataclass
class Held:
    """A delivery in a worker's hand, and how far it has come."""

    worker: str
    delivery: Delivery
    ids: list[str]
    at: int = 0
    live: bool = True


@dataclass
class Model:
    """What must be true, kept by hand."""

    key: dict[str, str | None] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    lanes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    holding: set[str] = field(default_factory=set)
    crashes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    finished: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    marked: set[str] = field(default_factory=set)
    watched: set[str] = field(default_factory=set)
    """Those of which it is looked whether they begin in time."""
    counting: dict[str, str] = field(default_factory=dict)
    """The job that counts of each unique name."""

    def lane(self, id: str) -> list[str] | None:
        key = self.key[id]
        return self.lanes[key] if key is not None else None

    def admit(self, id: str) -> None:
        self.state[id] = "waiting"
        lane = self.lane(id)
        if lane is not None and id not in self.holding:
            lane.append(id)
        self.holding.discard(id)

    def end(self, id: str, state: str, *, keeps_lane: bool) -> None:
        self.state[id] = state
        lane = self.lane(id)
        if lane is not None and not keeps_lane:
            lane.remove(id)
            self.finished[self.key[id] or ""].append(id)


class Engine(RuleBasedStateMachine):
    url: str
    shape: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.held: list[Held] = []
        self.number = 0

    def do(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    @initialize(keys=st.lists(KEYS, min_size=1, max_size=12))
    def begin(self, keys: list[str | None]) -> None:
        self.store = Store(self.url, "model")
        self.do(self.store.open())
        self.do(self.store.server.call("FLUSHDB"))
        self.driver = self.do(PartitionDriver.open(self.store, **self.shape))
        self.limit = self.driver.settings.lane_limit
        self.ordered = self.driver.settings.order is not None
        self.halts = self.driver.settings.on_failed == "halt"
        self.keeps = self.driver.settings.keep.completed != 0
        self.enqueue(keys, 5)

    def lane_key(self, key: str | None) -> str | None:
        if self.driver.settings.order == "partition":
            return "partition"
        return key if self.limit else None

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=6),
        priority=st.sampled_from([5, 5, 1, 10]),
        put=st.booleans(),
    )
    def enqueue(self, keys: list[str | None], priority: int, put: bool = False) -> None:
        jobs = []
        for key in keys:
            self.number += 1
            id = f"j{self.number:05d}"
            self.model.key[id] = self.lane_key(key)
            jobs.append(self.driver.job(id, key, priority=priority))
        if put and all(is_plain(job) for job in jobs):
            assert self.do(self.driver.partition.put(jobs)) == set()
            assert self.do(self.driver.partition.put(jobs)) == set(range(len(jobs)))
        else:
            assert self.do(self.driver.partition.enqueue(jobs)) == set()
        for job in jobs:
            self.model.admit(job.id)

    @rule(key=KEYS)
    def enqueue_for_later(self, key: str | None) -> None:
        self.number += 1
        id = f"j{self.number:05d}"
        assert self.do(self.driver.partition.enqueue([self.driver.job(id, key, when=3_600_000)])) == set()
        self.model.key[id] = self.lane_key(key)
        self.model.state[id] = "delayed"

    @rule(key=KEYS, delay=st.sampled_from([0, 3_600_000]))
    def enqueue_with_an_end(self, key: str | None, delay: int) -> None:
        self.number += 1
        id = f"j{self.number:05d}"
        job = self.driver.job(id, key, when=f"{delay} 7200000")
        assert self.do(self.driver.partition.enqueue([job])) == set()
        self.model.key[id] = self.lane_key(key)
        self.model.watched.add(id)
        if delay:
            self.model.state[id] = "delayed"
        else:
            self.model.admit(id)

    @rule(mode=st.sampled_from(["first", "last", "after"]))
    def enqueue_unique(self, mode: str) -> None:
        self.number += 1
        id = f"j{self.number:05d}"
        job, key = self.driver.job(id, "a"), self.lane_key("a")
        if mode == "after" and not self.limit:
            job = job._replace(record=pack(Body("task", b"{}"), priority=5, lane=unique_name_lane("ab" * 16)))
            key = "~after"
        name = mode.encode().hex()
        (answer,) = self.do(self.driver.partition.unique([UniqueJob(*job, name, mode, 3_600_000)]))
        counts = self.model.counting.get(mode)
        state = self.model.state[counts] if counts is not None else ""
        if counts is not None and (mode == "first" or state in ("waiting", "delayed")):
            assert answer == (counts, False)
            if mode != "first":
                self.model.watched.discard(counts)
        else:
            assert answer == (id, True)
            self.model.key[id] = key
            self.model.counting[mode] = id
            self.model.admit(id)

    @precondition(lambda self: any(self.known(id) for id in self.model.state))
    @rule(data=st.data())
    def enqueue_again(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([id for id in self.model.state if self.known(id)]))
        assert self.do(self.driver.enqueue(id, key="a")) == {0}

    def known(self, id: str) -> bool:
        return self.model.state[id] != "removed" and (self.keeps or self.model.state[id] != "completed")

    @rule(worker=WORKERS)
    def fetch_and_finish_one(self, worker: str) -> None:
        """What a worker does most of the time; it brings the lanes to send trains."""
        self.fetch(worker, 1)
        mine = [h for h in self.held if h.live and h.worker == worker and len(h.ids) == 1]
        if mine:
            self.finish_next(mine[-1], "done")

    @rule(worker=WORKERS, count=st.integers(1, 5))
    def fetch(self, worker: str, count: int) -> None:
        for delivery in self.do(self.driver.fetch(worker, count)):
            ids = ids_of(delivery)
            for id in ids:
                assert self.model.state[id] == "waiting", f"{id} was handed over while {self.model.state[id]}"
            self.check_order(ids)
            for id in ids:
                self.model.state[id] = "active"
            self.held.append(Held(worker, delivery, ids))

    def check_order(self, ids: list[str]) -> None:
        lane = self.model.lane(ids[0])
        if lane is None:
            assert len(ids) == 1
            return
        if self.ordered or self.model.key[ids[0]] == "~after":
            assert lane[: len(ids)] == ids, f"handed over {ids}, but the lane has {lane}"
        else:
            others = sum(self.model.state[id] == "active" or id in self.model.holding for id in lane)
            assert others < self.limit, "more of a lane were handed over than its limit"

    @precondition(lambda self: any(h.live for h in self.held))
    @rule(
        data=st.data(),
        word=st.sampled_from(["done", "done", "give_way", "delay", "dead", "delay_now", "later", "cancel"]),
    )
    def settle(self, data: st.DataObject, word: str) -> None:
        self.finish_next(data.draw(st.sampled_from([h for h in self.held if h.live])), word)

    def finish_next(self, held: Held, word: str) -> None:
        id = held.ids[held.at]
        delay = 0 if word == "delay_now" else 3_600_000
        leaves_lane = word == "delay" and not self.ordered and self.model.key[id] not in (None, "~after")
        marked = id in self.model.marked
        self.model.marked.discard(id)
        assert self.do(self.driver.settle(held.delivery, held.at, word.removesuffix("_now"), delay))
        held.at += 1
        if word in ("done", "give_way"):
            self.model.end(id, "completed", keeps_lane=False)
            if word == "give_way":
                self.go_back(held)
        elif word == "cancel":
            self.model.end(id, "cancelled", keeps_lane=False)
        elif marked and word.startswith(("delay", "later")):
            self.model.end(id, "cancelled", keeps_lane=False)
            if not leaves_lane:
                self.go_back(held)
        elif word == "dead":
            halted = self.halts and self.model.key[id] is not None
            self.model.end(id, "failed", keeps_lane=halted)
            if halted:
                self.go_back(held)
        else:
            lane = self.model.lane(id)
            if lane is not None and leaves_lane:
                lane.remove(id)
            elif lane is not None:
                self.model.holding.add(id)
            if word != "later":
                self.model.watched.discard(id)
            self.model.state[id] = "delayed"
            if word == "delay_now":
                self.model.admit(id)
            if not leaves_lane:
                self.go_back(held)
        if held.at == len(held.ids):
            held.live = False

    def go_back(self, held: Held) -> None:
        """What was not settled of a delivery waits again, but for what was told to stop."""
        for id in held.ids[held.at :]:
            if id in self.model.marked:
                self.model.marked.discard(id)
                self.model.end(id, "cancelled", keeps_lane=False)
            else:
                self.model.state[id] = "waiting"
        held.live = False

    @precondition(lambda self: any(not h.live for h in self.held))
    @rule(data=st.data(), word=st.sampled_from(["done", "dead", "delay"]))
    def settle_too_late(self, data: st.DataObject, word: str) -> None:
        held = data.draw(st.sampled_from([h for h in self.held if not h.live]))
        at = data.draw(st.integers(0, len(held.ids) - 1))
        assert not self.do(self.driver.settle(held.delivery, at, word, 0)), "a stale outcome was taken"

    @precondition(lambda self: any(h.live for h in self.held))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from([h for h in self.held if h.live]))
        left = [id for id in held.ids[held.at :] if id not in self.model.marked]
        assert self.do(self.driver.partition.release(held.worker, [held.delivery.position])) == len(left)
        self.go_back(held)

    @rule(worker=WORKERS, seen=st.booleans())
    def crash(self, worker: str, seen: bool) -> None:
        mine = [h for h in self.held if h.live and h.worker == worker]
        started = [h.delivery.position for h in mine[:2]] if seen else None
        while self.do(self.driver.partition.reclaim(worker, CRASHED, started)).more:
            pass
        for n, held in enumerate(mine):
            id = held.ids[held.at]
            if id in self.model.marked:
                self.go_back(held)
                continue
            if (seen and n < 2) or (not seen and self.model.crashes[id] < 2):
                self.model.crashes[id] += 1
                self.model.watched.discard(id)
            if self.model.crashes[id] >= 3:
                self.model.end(id, "failed", keeps_lane=self.halts and self.model.key[id] is not None)
                held.at += 1
            self.go_back(held)

    def any_job(self, data: st.DataObject, *states: str) -> str:
        known = [id for id in self.model.state if self.known(id)]
        return data.draw(
            st.sampled_from([id for id in known if not states or self.model.state[id] in states])
        )

    def has(self, *states: str) -> bool:
        return any(self.known(id) and self.model.state[id] in states for id in self.model.state)

    @precondition(lambda self: any(h.live for h in self.held))
    @rule(data=st.data(), word=st.sampled_from(["", "delay", "done", "cancel"]))
    def cancel_what_runs(self, data: st.DataObject, word: str) -> None:
        """Any job of a delivery; perhaps its first one ends then."""
        held = data.draw(st.sampled_from([h for h in self.held if h.live]))
        self.cancel_one(data.draw(st.sampled_from([held.ids[held.at], *held.ids[held.at :]])))
        if word:
            self.finish_next(held, word)

    @precondition(lambda self: self.has("waiting", "delayed", "active", "completed", "failed", "cancelled"))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.cancel_one(self.any_job(data))

    def cancel_one(self, id: str) -> None:
        state = self.model.state[id]
        (word,) = self.do(self.driver.cancel(id))
        if state == "active":
            assert word == "cancelling"
            self.model.marked.add(id)
        elif state in ("waiting", "delayed"):
            assert word == "cancelled"
            self.leave(id, "cancelled")
        else:
            assert word == state

    @precondition(lambda self: self.has("waiting", "delayed", "active", "completed", "failed", "cancelled"))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.remove_one(self.any_job(data))

    @precondition(lambda self: self.has("failed"))
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        self.remove_one(self.any_job(data, "failed"))

    def remove_one(self, id: str) -> None:
        (word,) = self.do(self.driver.remove(id))
        if self.model.state[id] == "active":
            assert word == "active"
        else:
            assert word == "removed"
            self.leave(id, "removed")

    def leave(self, id: str, state: str) -> None:
        """A job leaves its lane, where it is in it."""
        lane = self.model.lane(id)
        in_lane = lane is not None and id in lane
        self.model.holding.discard(id)
        self.model.end(id, state, keeps_lane=not in_lane)

    @precondition(lambda self: self.has("failed", "cancelled"))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        id = self.any_job(data, "failed", "cancelled")
        assert self.do(self.driver.retry(id)) == ["retried"]
        self.model.watched.discard(id)
        lane = self.model.lane(id)
        if lane is not None and id in lane:  # it halted it
            assert lane[0] == id
            self.model.state[id] = "waiting"
        else:
            self.model.admit(id)
        self.model.crashes[id] = min(self.model.crashes[id], 2)

    @precondition(lambda self: self.has("delayed"))
    @rule(data=st.data())
    def promote_one(self, data: st.DataObject) -> None:
        id = self.any_job(data, "delayed")
        assert self.do(self.driver.partition.promote_one(new_token(), id)) == "promoted"
        self.model.admit(id)

    @rule()
    def time_passes(self) -> None:
        due = sorted(id for id, state in self.model.state.items() if state == "delayed")
        self.do(self.driver.let_time_pass(*due))
        moved, wait, _ = self.do(self.driver.partition.promote())
        assert (moved, wait is None) == (len(due), not self.model.watched)
        for id in due:
            self.model.admit(id)

    @rule()
    def ends_come(self) -> None:
        """What has not begun is cancelled, wherever it waits."""
        self.do(self.driver.let_end_come(*self.model.watched))
        self.do(self.driver.partition.promote())
        for id in self.model.watched:
            if self.model.state[id] in ("waiting", "delayed"):
                self.leave(id, "cancelled")
        self.model.watched.clear()

    @rule()
    def forget_scripts(self) -> None:
        self.do(self.store.server.call("SCRIPT", "FLUSH"))

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "driver"):
            return
        counts = self.do(self.driver.counts())
        states = list(self.model.state.values())
        live = sum(h.live for h in self.held)
        assert counts.delayed == states.count("delayed")
        assert counts.failed == states.count("failed")
        assert counts.cancelled == states.count("cancelled")
        assert self.do(self.driver.marked()) == self.model.marked
        assert counts.completed == (states.count("completed") if self.keeps else 0)
        assert counts.active == live
        assert counts.waiting == states.count("waiting") + states.count("active") - live

    def teardown(self) -> None:
        try:
            if hasattr(self, "driver"):
                self.run_to_the_end()
        finally:
            self.loop.close()

    def run_to_the_end(self) -> None:
        assert self.do(every_fault(self.store)) == []
        for worker in ("w1", "w2"):
            self.crash(worker, True)
        self.ends_come()
        self.time_passes()
        while deliveries := self.do(self.driver.fetch("w3")):
            for delivery in deliveries:
                self.check_order(ids_of(delivery))
                for at, id in enumerate(ids_of(delivery)):
                    assert self.do(self.driver.settle(delivery, at, "done"))
                    self.model.end(id, "completed", keeps_lane=False)
        halted = {
            key for key, lane in self.model.lanes.items() for id in lane if self.model.state[id] == "failed"
        }
        ended = ("completed", "failed", "cancelled", "removed")
        left = {id for id, state in self.model.state.items() if state not in ended}
        assert {self.model.key[id] for id in left} <= halted, f"{left} were never handed over"
        assert self.do(every_fault(self.store)) == []
        if not left and not halted:
            names = self.do(self.store.server.call("KEYS", "{model:q:0}:*"))
            short = {name.decode("utf-8", "replace").rpartition("}:")[2] for name in names}
            assert not short & {"trains", "delayed", "lanes", "expiring"}
            assert not any(name.startswith("lane:") for name in short)
        self.do(self.store.close())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_any_sequence_of_verbs_keeps_every_job_and_every_order(
    server_url: str, shape: dict[str, Any]
) -> None:
    Engine.url = server_url.replace("db=0", "db=1")
    Engine.shape = shape

    run_state_machine_as_test(
        Engine,
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            deadline=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
