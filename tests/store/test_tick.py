"""Tick: what is due is fired once, whoever proposes it, and the server's clock decides."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from partition_driver import PartitionDriver

from qbull.core.codec import Signature
from qbull.core.options import Options
from qbull.core.record import to_datetime
from qbull.core.retry import Retry
from qbull.core.schedule import Schedule
from qbull.core.schedule_rule import ScheduleRule
from qbull.core.schedule_runs import EndedRun, read_runs
from qbull.core.schedule_state import PlanChange, SchedulePlan, fields_of, pause_plan, resume_plan
from qbull.core.task import TaskSpec
from qbull.errors import NotFound
from qbull.store.read import inspect, pages
from qbull.store.store import Store
from qbull.store.verbs.schedule_runs import note_ended_runs
from qbull.store.verbs.schedules import PartitionPlans, ScheduleLocation, ScheduleStore
from qbull.store.verbs.tick import ScheduleTicks

MINUTE = 60_000


@dataclass
class Ticker:
    """A schedule in one partition whose plan can be set back in time."""

    driver: PartitionDriver
    schedules: ScheduleStore
    ticks: ScheduleTicks
    schedule: Schedule

    @classmethod
    async def make(
        cls,
        store: Store,
        settings: dict[str, Any] | None = None,
        *,
        every: int = 60,
        late: int = 30,
        **rule: Any,
    ) -> Ticker:
        """A tick `every` so many seconds, the latest of them so many seconds ago: none comes while a test runs."""
        driver = await PartitionDriver.open(store, **(settings or {}))
        schedules = ScheduleStore(store)
        now_ms = (await schedules.read(ScheduleLocation("q", 0), [])).now_ms
        start = to_datetime(now_ms - late * 1000 - 1000 * every * 1000)
        schedule = ScheduleRule(every=every, start=start, **rule).schedule(
            "s", "q", "task", b"{}", None, "UTC"
        )
        await schedules.put(schedule, "code", driver.settings)
        return cls(driver, schedules, ScheduleTicks(store), schedule)

    async def due(self) -> PartitionPlans:
        return await self.schedules.read(ScheduleLocation("q", 0), (), due=50)

    async def plan(self) -> SchedulePlan:
        return (await self.schedules.read(ScheduleLocation("q", 0), ["s"])).plans["s"]

    async def set_back(self, ms: int) -> int:
        """As if nothing had run for so long; gives the instant that is planned next."""
        look = await self.schedules.read(ScheduleLocation("q", 0), ["s"])
        planned = self.schedule.after(look.now_ms - ms)
        assert planned is not None
        base = self.driver.partition.base
        await self.driver.store.server.call("HSET", base + "schedule:s", "next", planned)
        await self.driver.store.server.call("ZADD", base + "schedules", self.schedule.due(planned), "s")
        return planned

    async def tick(self) -> tuple[int, int, int]:
        """How many ticks were fired, skipped and missed."""
        look = await self.due()
        counts = [ticked[1:] for ticked in await self.ticks.fire_due(self.driver.partition, look)]
        return counts[0] if counts else (0, 0, 0)

    async def jobs(self) -> list[str]:
        found = await pages.page([self.driver.partition], "waiting", 0, 1000)
        return [job.id for job in found]


async def test_a_tick_that_is_not_due_is_not_fired(store: Store) -> None:
    ticker = await Ticker.make(store, every=3600)

    assert await ticker.tick() == (0, 0, 0)
    assert await ticker.jobs() == []


async def test_a_due_tick_becomes_a_job_that_knows_its_schedule(store: Store) -> None:
    ticker = await Ticker.make(store)
    planned = await ticker.set_back(MINUTE)

    assert await ticker.tick() == (1, 0, 0)

    found = await inspect.find(ticker.driver.partition, ticker.schedule.tick_id(planned))
    assert found is not None and found.info("q", 1).schedule == "s"
    plan = await ticker.plan()
    assert (plan.last_ms, plan.job) == (planned, ticker.schedule.tick_id(planned))
    assert plan.next_ms == planned + MINUTE


async def test_any_number_may_propose_the_same_tick_and_it_is_fired_once(store: Store) -> None:
    ticker = await Ticker.make(store)
    await ticker.set_back(MINUTE)
    looks = [await ticker.due() for _ in range(20)]

    answers = await asyncio.gather(*(ticker.ticks.fire_due(ticker.driver.partition, look) for look in looks))

    assert sum(ticked.fired for answer in answers for ticked in answer) == 1
    assert len(await ticker.jobs()) == 1


async def test_a_proposal_whose_reply_was_lost_may_be_sent_again(store: Store) -> None:
    ticker = await Ticker.make(store, catch_up="all")
    await ticker.set_back(5 * MINUTE)
    look = await ticker.due()

    first = await ticker.ticks.fire_due(ticker.driver.partition, look)
    second = await ticker.ticks.fire_due(ticker.driver.partition, look)

    assert (first[0].fired, second[0].fired) == (5, 0)
    assert len(await ticker.jobs()) == 5


async def test_a_worker_whose_clock_is_ahead_fires_nothing_early(store: Store) -> None:
    ticker = await Ticker.make(store)
    look = await ticker.schedules.read(ScheduleLocation("q", 0), ["s"])

    for hours in (1, -1):
        wrong = look._replace(now_ms=look.now_ms + hours * 3_600_000)
        answer = await ticker.ticks.fire_due(ticker.driver.partition, wrong)
        assert [ticked[1:] for ticked in answer] == [(0, 0, 0)]

    assert await ticker.jobs() == []
    assert (await ticker.plan()).next_ms == look.plans["s"].next_ms


async def test_a_worker_whose_clock_is_behind_cannot_fire_the_wrong_tick(store: Store) -> None:
    ticker = await Ticker.make(store, catch_up="one")
    await ticker.set_back(10 * MINUTE)
    look = await ticker.due()

    await ticker.ticks.fire_due(ticker.driver.partition, look._replace(now_ms=look.now_ms - 5 * MINUTE))
    assert await ticker.jobs() == []  # it had not seen the latest
    await ticker.tick()

    latest = ticker.schedule.after(look.now_ms - MINUTE)
    assert latest is not None
    assert await ticker.jobs() == [ticker.schedule.tick_id(latest)]


@pytest.mark.parametrize(("catch_up", "fired", "missed"), [("skip", 1, 9), ("one", 1, 9), ("all", 10, 0)])
async def test_what_becomes_of_ticks_that_were_missed(
    store: Store, catch_up: str, fired: int, missed: int
) -> None:
    ticker = await Ticker.make(store, catch_up=catch_up)
    await ticker.set_back(10 * MINUTE)

    assert await ticker.tick() == (fired, 0, missed)
    plan = await ticker.plan()
    assert (plan.fired, plan.missed) == (fired, missed)


@pytest.mark.parametrize(("catch_up", "fired", "missed"), [("skip", 0, 1), ("one", 1, 0), ("all", 1, 0)])
async def test_a_tick_that_is_more_than_a_minute_late_was_missed(
    store: Store, catch_up: str, fired: int, missed: int
) -> None:
    ticker = await Ticker.make(store, every=7 * 86_400, late=61, catch_up=catch_up)
    planned = await ticker.set_back(7 * 86_400_000)

    assert await ticker.tick() == (fired, 0, missed)
    assert (await ticker.plan()).next_ms == planned + 7 * 86_400_000


async def test_all_are_caught_up_oldest_first_and_up_to_a_limit(store: Store) -> None:
    ticker = await Ticker.make(store, catch_up="all", catch_up_limit=7)
    planned = await ticker.set_back(10 * MINUTE)

    assert await ticker.tick() == (7, 0, 3)
    assert await ticker.jobs() == [ticker.schedule.tick_id(planned + n * MINUTE) for n in range(3, 10)]


async def test_while_the_run_before_goes_on_a_tick_is_skipped(store: Store) -> None:
    ticker = await Ticker.make(store)
    await ticker.set_back(2 * MINUTE)
    await ticker.tick()
    base = ticker.driver.partition.base
    await store.server.call("HSET", base + "schedule:s", "last", 1)

    await ticker.set_back(MINUTE)
    assert await ticker.tick() == (0, 1, 0)
    (running,) = await ticker.driver.fetch()
    await ticker.set_back(MINUTE)
    assert await ticker.tick() == (0, 1, 0)
    await ticker.driver.finish(running)
    await ticker.set_back(MINUTE)
    assert (await ticker.tick())[1] == 0


async def test_where_ticks_may_overlap_they_do(store: Store) -> None:
    ticker = await Ticker.make(store, overlap="allow")
    await ticker.set_back(2 * MINUTE)
    await ticker.tick()
    first = await ticker.jobs()
    await store.server.call("HSET", ticker.driver.partition.base + "schedule:s", "last", 1)
    await store.server.call("HDEL", ticker.driver.partition.base + "schedule:s", "job")

    await ticker.set_back(3 * MINUTE)

    assert first and (await ticker.tick())[1] == 0


async def test_all_of_them_but_one_at_a_time(store: Store) -> None:
    ticker = await Ticker.make(store, catch_up="all", overlap="skip")
    planned = await ticker.set_back(3 * MINUTE)
    ran: list[str] = []

    while len(ran) < 3:
        assert len(await ticker.jobs()) <= 1
        for delivery in await ticker.driver.fetch():
            ran += [job.id.decode() for job in delivery.jobs()]
            await ticker.tick()
            assert await ticker.jobs() == []  # it waits for the run before
            await ticker.driver.finish(delivery)
        await ticker.tick()

    assert ran == [ticker.schedule.tick_id(planned + n * MINUTE) for n in range(3)]


async def test_a_run_that_was_asked_for_counts_as_the_run_before(store: Store) -> None:
    ticker = await Ticker.make(store)

    assert await ticker.ticks.fire_now(ticker.driver.partition, ticker.schedule, "by-hand")
    assert not await ticker.ticks.fire_now(ticker.driver.partition, ticker.schedule, "by-hand")
    await ticker.set_back(MINUTE)

    assert await ticker.tick() == (0, 1, 0)
    assert await ticker.jobs() == ["by-hand"]


async def test_a_tick_in_an_ordered_queue_takes_its_turn(store: Store) -> None:
    ticker = await Ticker.make(store, {"order": "partition"}, catch_up="all")
    await ticker.driver.enqueue("before")
    planned = await ticker.set_back(2 * MINUTE)
    await ticker.tick()

    order = []
    for _ in range(3):
        (delivery,) = await ticker.driver.fetch()
        order += [job.id.decode() for job in delivery.jobs()]
        await ticker.driver.finish(delivery)
        if len(order) == 3:
            break

    assert order == ["before", ticker.schedule.tick_id(planned), ticker.schedule.tick_id(planned + MINUTE)]


async def test_an_instant_that_the_clock_passes_again_is_not_fired_again(store: Store) -> None:
    ticker = await Ticker.make(store, catch_up="all", overlap="allow")
    await ticker.set_back(3 * MINUTE)
    assert await ticker.tick() == (3, 0, 0)
    for delivery in await ticker.driver.fetch():
        await ticker.driver.finish(delivery)

    await ticker.set_back(3 * MINUTE)

    assert await ticker.tick() == (0, 0, 0)
    assert await ticker.jobs() == []


async def test_after_its_end_it_rests(store: Store) -> None:
    ticker = await Ticker.make(store)
    look = await ticker.schedules.read(ScheduleLocation("q", 0), ["s"])
    ended = ScheduleRule(every=60, end=to_datetime(look.now_ms)).schedule(
        "s", "q", "task", b"{}", None, "UTC"
    )
    await ticker.schedules.put(ended, "code", ticker.driver.settings)

    due = await ticker.due()

    assert (due.plans, due.wait) == ({}, None)
    assert (await ticker.plan()).next_ms is None


async def test_a_paused_schedule_fires_nothing_and_goes_on_with_the_next_tick(store: Store) -> None:
    ticker = await Ticker.make(store)
    await ticker.set_back(5 * MINUTE)

    await ticker.schedules.change("s", pause_plan)
    assert await ticker.tick() == (0, 0, 0)
    await ticker.schedules.change("s", resume_plan)

    plan, look = await ticker.plan(), await ticker.schedules.read(ScheduleLocation("q", 0), ["s"])
    assert await ticker.tick() == (0, 0, 0)
    assert plan.next_ms is not None and plan.next_ms > look.now_ms - MINUTE


async def test_two_who_change_a_schedule_at_once_do_not_lose_each_others_change(store: Store) -> None:
    ticker = await Ticker.make(store)
    other = ScheduleRule(every=30).schedule("s", "q", "task", b'{"a":1}', None, "UTC")

    await asyncio.gather(
        ticker.schedules.change("s", pause_plan),
        ticker.schedules.put(other, "own", ticker.driver.settings),
        ticker.schedules.put(ticker.schedule, "code", ticker.driver.settings),
    )

    plan = await ticker.plan()
    assert plan.paused_ms is not None
    assert (plan.own, plan.code) == (other, ticker.schedule)


async def test_a_tick_between_reading_and_writing_is_seen(store: Store) -> None:
    ticker = await Ticker.make(store)
    await ticker.set_back(MINUTE)
    look = await ticker.due()

    await ticker.schedules.change("s", pause_plan)
    answer = await ticker.ticks.fire_due(ticker.driver.partition, look)

    assert [ticked.fired for ticked in answer] == [0]
    assert await ticker.jobs() == []


async def test_a_schedule_that_was_taken_away_is_gone(store: Store) -> None:
    ticker = await Ticker.make(store)

    await ticker.schedules.withdraw("s", ScheduleLocation("q", 0), "code")

    assert await ticker.schedules.locations() == {}
    with pytest.raises(NotFound):
        await ticker.schedules.change("s", pause_plan)
    assert await store.server.call("EXISTS", ticker.driver.partition.base + "schedules") == 0


async def test_what_cannot_be_read_does_not_hold_up_the_others(store: Store) -> None:
    ticker = await Ticker.make(store)
    base = ticker.driver.partition.base
    await store.server.call("HSET", base + "schedule:broken", "rev", 1, "code", "{not json", "next", 1)
    await store.server.call("ZADD", base + "schedules", 1, "broken")
    await ticker.set_back(MINUTE)

    look = await ticker.due()
    fired = await ticker.ticks.fire_due(ticker.driver.partition, look)
    await ticker.schedules.postpone(
        ScheduleLocation("q", 0), "broken", look.unreadable["broken"][0], look.now_ms + MINUTE
    )

    assert [ticked.fired for ticked in fired] == [1]
    assert "broken" not in (await ticker.due()).unreadable
    await store.server.call("DEL", base + "schedule:broken")
    await store.server.call("ZREM", base + "schedules", "broken")


async def test_promote_says_when_a_schedule_is_due(store: Store) -> None:
    ticker = await Ticker.make(store, every=3600)

    tick = (await ticker.driver.partition.promote()).tick

    assert tick is not None and 0 < tick <= 3600
    await ticker.schedules.change("s", pause_plan)
    assert (await ticker.driver.partition.promote()).tick is None


async def test_a_schedule_follows_its_partitions_and_ticks_in_one_place_only(store: Store) -> None:
    ticker = await Ticker.make(store, catch_up="all")
    planned = await ticker.set_back(2 * MINUTE)
    look = await ticker.due()

    for _ in range(2):  # whoever moves it may die, and another begins again
        await ticker.schedules.move("s", ScheduleLocation("q", 0), ScheduleLocation("q", 7))
    late = await ticker.ticks.fire_due(ticker.driver.partition, look)

    assert [ticked.fired for ticked in late] == [0]
    assert await ticker.schedules.location("s") == ScheduleLocation("q", 7)
    assert (await ticker.schedules.read(ScheduleLocation("q", 0), ["s"])).plans == {}
    assert (await ticker.schedules.read(ScheduleLocation("q", 7), ["s"])).plans["s"].next_ms == planned
    await ticker.schedules.move("s", ScheduleLocation("q", 7), ScheduleLocation("q", 0))
    assert await ticker.tick() == (2, 0, 0)


OLD, NEW, NEWER = ScheduleLocation("q", 0), ScheduleLocation("q", 7), ScheduleLocation("q", 8)


@pytest.mark.parametrize("step", ["marked", "copied", "registered"])
async def test_a_move_that_was_cut_off_is_ended_by_whoever_comes_next(store: Store, step: str) -> None:
    ticker = await Ticker.make(store)
    plan = await ticker.plan()
    await ticker.schedules._write(OLD, "s", plan.rev, PlanChange(None, {"moving": str(NEW)}))
    if step != "marked":
        await ticker.schedules._write(NEW, "s", 0, PlanChange(None, fields_of(plan)))
    if step == "registered":
        await ticker.schedules._register("s", NEW)

    await ticker.schedules.move("s", OLD, NEW)
    await ticker.schedules.change("s", pause_plan)

    assert await ticker.schedules.location("s") == NEW
    assert (await ticker.schedules.read(NEW, ["s"])).plans["s"].paused_ms is not None
    assert (await ticker.schedules.read(OLD, ["s"])).plans == {}
    await ticker.schedules.move("s", NEW, OLD)


async def test_whoever_meets_a_schedule_on_its_way_ends_the_move_first(store: Store) -> None:
    ticker = await Ticker.make(store)
    plan = await ticker.plan()
    await ticker.schedules._write(OLD, "s", plan.rev, PlanChange(None, {"moving": str(NEW)}))
    other = ScheduleRule(every=30).schedule("s", "q", "task", b"{}", None, "UTC")

    await ticker.schedules.change("s", pause_plan)
    await ticker.schedules.put(other, "own", ticker.driver.settings)  # its home is the old one: it comes back

    found = await ticker.schedules.find("s")
    assert found is not None
    assert (found.location, found.plan.own, found.plan.paused_ms is not None) == (OLD, other, True)
    assert (await ticker.schedules.read(NEW, ["s"])).plans == {}


async def test_two_moves_to_different_places_come_one_after_the_other(store: Store) -> None:
    ticker = await Ticker.make(store)

    await asyncio.gather(ticker.schedules.move("s", OLD, NEW), ticker.schedules.move("s", OLD, NEWER))

    plans = [
        name for place in (OLD, NEW, NEWER) for name in (await ticker.schedules.read(place, ["s"])).plans
    ]
    assert plans == ["s"]
    found = await ticker.schedules.find("s")
    assert found is not None and found.location == await ticker.schedules.location("s")
    await ticker.schedules.move("s", found.location, OLD)


async def test_a_mover_that_was_frozen_and_wakes_up_brings_nothing_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticker = await Ticker.make(store)
    frozen = ScheduleStore(store)
    reached, wake = asyncio.Event(), asyncio.Event()
    write = frozen._write

    async def write_late(place: ScheduleLocation, name: str, rev: int, change: PlanChange) -> bool:
        if place == NEW:
            reached.set()
            await wake.wait()
        return await write(place, name, rev, change)

    monkeypatch.setattr(frozen, "_write", write_late)
    moving = asyncio.create_task(frozen.move("s", OLD, NEW))
    await reached.wait()  # it has read the plan, and is about to write it
    await ticker.schedules.move("s", OLD, NEW)
    await ticker.schedules.move("s", NEW, NEWER)

    wake.set()
    await moving

    assert (await ticker.schedules.read(NEW, ["s"])).plans == {}
    assert await ticker.schedules.location("s") == NEWER
    await ticker.schedules.move("s", NEWER, OLD)


async def test_a_schedule_that_was_removed_can_be_made_again_at_once(store: Store) -> None:
    ticker = await Ticker.make(store)
    before = await ticker.plan()

    await ticker.schedules.remove("s")
    assert await ticker.schedules.find("s") is None
    await ticker.schedules.put(ticker.schedule, "own", ticker.driver.settings)

    again = await ticker.plan()
    assert (again.own, again.code, again.fired) == (ticker.schedule, None, 0)
    assert again.rev > before.rev
    assert await store.server.call("PTTL", ticker.driver.partition.base + "schedule:s") == -1


async def test_the_trace_of_a_schedule_expires(store: Store) -> None:
    ticker = await Ticker.make(store)

    await ticker.schedules.remove("s")

    assert 0 < await store.server.call("PTTL", ticker.driver.partition.base + "schedule:s") <= 3_600_000


async def test_a_run_expires_as_any_job_of_its_task_does(store: Store) -> None:
    ticker = await Ticker.make(store)
    signature, defaults = Signature("task", lambda: None), Options(expires=60)
    spec = TaskSpec("task", print, signature, "async", Retry(), None, defaults=defaults)
    ticker.ticks = ScheduleTicks(store, tasks={"task": spec})
    await ticker.set_back(45 * 1000)

    assert await ticker.tick() == (1, 0, 0)
    assert await ticker.ticks.fire_now(ticker.driver.partition, ticker.schedule, "by-hand")

    planned, by_hand = sorted(await ticker.jobs(), key=lambda id: id == "by-hand")
    for id in (planned, by_hand):
        found = await inspect.find(ticker.driver.partition, id)
        assert found is not None
        assert found.body().expires == 60_000
    await ticker.driver.let_end_come(planned, by_hand)
    await ticker.driver.partition.promote()
    assert [await ticker.driver.state(id) for id in (planned, by_hand)] == ["cancelled", "cancelled"]


async def test_the_newest_30_runs_are_kept_with_their_outcomes(store: Store) -> None:
    ticker = await Ticker.make(store, catch_up="all", overlap="allow")
    first = await ticker.set_back(40 * MINUTE)
    await ticker.tick()

    runs = read_runs((await ticker.plan()).runs)
    assert len(runs) == 30
    assert runs[-1].job_id == ticker.schedule.tick_id(first + 10 * MINUTE)
    assert {(run.outcome, run.duration_ms) for run in runs} == {(None, None)}

    ended = [EndedRun("s", (runs[0].job_id or "").encode(), "f", 12.25)]
    forgotten = EndedRun("s", ticker.schedule.tick_id(first).encode(), "c", 1.0)
    for _ in range(2):
        assert await note_ended_runs(ticker.driver.partition, [*ended, forgotten]) == 1

    noted = read_runs((await ticker.plan()).runs)
    assert (noted[0].outcome, noted[0].duration_ms) == ("failed", 12.2)
    assert noted[1:] == runs[1:]


async def test_skipped_and_missed_runs_are_among_the_runs(store: Store) -> None:
    ticker = await Ticker.make(store)
    await ticker.set_back(MINUTE)
    await ticker.tick()
    await ticker.set_back(MINUTE)
    await ticker.driver.store.server.call("HDEL", ticker.driver.partition.base + "schedule:s", "last")
    await ticker.tick()
    late = await Ticker.make(store, late=3590, every=3600)
    await late.set_back(3 * 3_600_000)
    await late.tick()

    outcomes = [run.outcome for run in read_runs((await late.plan()).runs)]
    assert outcomes == ["missed", "skipped", None]
