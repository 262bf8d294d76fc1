"""Schedules: what users may say, what is planned, what is proposed when ticks are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from qbull.core.ids import planned_ms_in, schedule_in
from qbull.core.schedule import MAX_CAUGHT_UP_TICKS, Schedule, propose_ticks, version_of
from qbull.core.schedule_rule import ScheduleRule
from qbull.core.schedule_state import (
    SchedulePlan,
    declare_schedule,
    fields_of,
    pack_schedule,
    pause_plan,
    plan_of,
    resume_plan,
)
from qbull.errors import DeclarationError

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def a_schedule(**rule: Any) -> Schedule:
    rule = rule or {"every": 60}
    return ScheduleRule(**rule).schedule("s", "q", "task", b"{}", None, "UTC")


# What users say.


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({}, "give either a cron expression"),
        ({"cron": "* * * * *", "every": 5}, "give either a cron expression"),
        ({"cron": "61 * * * *"}, 'its minute "61"'),
        ({"cron": "0 9 * * *", "tz": "Mars/Phobos"}, "no such time zone"),
        ({"every": 0.01}, "every=0.01: give seconds from 0.1"),
        ({"every": -5}, "every=-5"),
        ({"every": "5"}, "every='5'"),
        ({"every": float("nan")}, "every=nan"),
        ({"every": 60, "catch_up": "some"}, "catch_up='some': use one of skip, one, all"),
        ({"every": 60, "overlap": "no"}, "overlap='no'"),
        ({"every": 60, "catch_up_limit": 0}, "catch_up_limit=0: give a whole number from 1 to 1,000"),
        ({"every": 60, "jitter": -1}, "jitter=-1"),
        ({"every": 60, "jitter": 60}, "jitter=60: must be shorter than the 60 s between two ticks"),
        ({"every": 60, "start": datetime(2026, 1, 1)}, "give a datetime with a time zone"),
        ({"every": 60, "start": NOON, "end": NOON - timedelta(days=1)}, "it ends before it starts"),
        ({"cron": "0 9 * * *", "start": NOON, "end": NOON + timedelta(hours=1)}, "it never ticks"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(rule: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        ScheduleRule(**rule).schedule("nightly", "q", "task", b"{}", None, "UTC")

    assert str(refused.value).startswith('schedule "nightly": ')
    assert reason in str(refused.value)


def test_who_wants_every_tick_wants_them_although_one_is_late() -> None:
    assert a_schedule(every=60).overlap == "skip"
    assert a_schedule(every=60, catch_up="all").overlap == "allow"
    assert a_schedule(every=60, catch_up="all", overlap="skip").overlap == "skip"


def test_start_and_end_are_bounds() -> None:
    schedule = a_schedule(every=60, start=NOON + timedelta(seconds=30), end=NOON + timedelta(seconds=150))

    found = [(tick - NOON_MS) // 1000 for tick in schedule.ticks(NOON_MS - 86_400_000)]

    assert found == [30, 90, 150]


def test_the_name_of_a_tick_says_what_it_is() -> None:
    schedule = a_schedule(every=0.5)

    assert schedule.tick_id(NOON_MS) == "s@2026-01-31T12:00:00Z"
    assert schedule.tick_id(NOON_MS + 500) == "s@2026-01-31T12:00:00.500Z"
    assert schedule_in("s@2026-01-31T12:00:00.500Z") == "s"
    assert planned_ms_in("s@2026-01-31T12:00:00.500Z") == NOON + timedelta(milliseconds=500)
    assert [schedule_in(id) for id in ("order:5", "a@b.example", "@", "x@2026")] == [None] * 4
    assert planned_ms_in("s@2026-99-99T12:00:00Z") is None


@given(planned=st.integers(0, 2 * 10**12))
def test_jitter_is_the_same_for_everybody_and_bounded(planned: int) -> None:
    schedule = a_schedule(every=60, jitter=20)

    due = schedule.due(planned)

    assert planned <= due <= planned + 20_000
    assert due == a_schedule(every=60, jitter=20).due(planned)


def test_jitter_spreads() -> None:
    schedule = a_schedule(every=60, jitter=20)

    late = {schedule.due(tick) - tick for tick in islice(schedule.ticks(NOON_MS), 50)}

    assert len(late) > 40


def test_the_same_code_has_the_same_version() -> None:
    a, b = a_schedule(every=60), a_schedule(cron="0 9 * * *")

    assert version_of([a, b]) == version_of([b, a])
    assert len({version_of(some) for some in ([], [a], [b], [a, b])}) == 4


# What is proposed.


def test_a_tick_on_time_is_proposed_with_the_one_that_follows() -> None:
    proposal = propose_ticks(a_schedule(every=60), NOON_MS, NOON_MS + 5)

    assert proposal == ([NOON_MS], NOON_MS + 60_000, 0)


def test_of_many_missed_the_latest_are_proposed_and_the_rest_counted() -> None:
    proposal = propose_ticks(a_schedule(every=60), NOON_MS, NOON_MS + 600_000)

    assert proposal.instants[-1] == NOON_MS + 600_000
    assert proposal.missed + len(proposal.instants) == 11
    assert proposal.following == NOON_MS + 660_000


def test_who_wants_all_gets_them_oldest_first_a_hundred_at_a_time() -> None:
    schedule = a_schedule(every=1, catch_up="all")

    first = propose_ticks(schedule, NOON_MS, NOON_MS + 250_000)
    assert first.following is not None
    second = propose_ticks(schedule, first.following, NOON_MS + 250_000)

    assert first.instants == [NOON_MS + n * 1000 for n in range(100)]
    assert second.instants == [NOON_MS + n * 1000 for n in range(100, 200)]
    assert first.missed == second.missed == 0


def test_who_wants_all_gets_the_latest_up_to_a_limit() -> None:
    schedule = a_schedule(every=1, catch_up="all", catch_up_limit=10)

    proposal = propose_ticks(schedule, NOON_MS, NOON_MS + 100_000)

    assert proposal.instants == [NOON_MS + n * 1000 for n in range(91, 101)]
    assert proposal.missed == 91


@pytest.mark.parametrize("rule", [{"every": 0.1}, {"cron": "* * * * * *"}, {"cron": "* 9 * * *"}])
def test_a_year_without_workers_is_looked_through_in_no_time(rule: dict[str, Any]) -> None:
    schedule = a_schedule(**rule, catch_up="all", catch_up_limit=50)
    year_later = NOON_MS + 365 * 86_400_000

    proposal = propose_ticks(schedule, schedule.after(NOON_MS) or 0, year_later)

    assert len(proposal.instants) == 50
    assert proposal.instants[-1] <= year_later < (schedule.after(proposal.instants[-1]) or 0)
    assert proposal.following == schedule.after(year_later)
    assert proposal.missed == MAX_CAUGHT_UP_TICKS


def test_after_its_end_nothing_follows() -> None:
    proposal = propose_ticks(a_schedule(every=60, end=NOON + timedelta(seconds=30)), NOON_MS, NOON_MS + 5)

    assert proposal == ([NOON_MS], None, 0)


# What becomes of its plan.


def test_a_new_schedule_begins_with_the_first_tick_from_now() -> None:
    change = declare_schedule(SchedulePlan(), "code", a_schedule(every=60), NOON_MS + 5)

    assert change is not None
    assert (change.due_ms, change.fields["next"]) == (NOON_MS + 60_000, NOON_MS + 60_000)


def test_the_same_said_again_changes_nothing() -> None:
    schedule = a_schedule(every=60)

    assert declare_schedule(SchedulePlan(rev=1, code=schedule), "code", a_schedule(every=60), NOON_MS) is None


def test_while_its_timing_stays_the_same_a_deploy_loses_no_tick() -> None:
    before = SchedulePlan(rev=1, code=a_schedule(every=60), next_ms=NOON_MS)

    other_args = declare_schedule(before, "code", a_schedule(every=60, overlap="allow"), NOON_MS + 5000)
    other_timing = declare_schedule(before, "code", a_schedule(every=30), NOON_MS + 5000)

    assert other_args is not None and other_args.fields["next"] == NOON_MS
    assert other_timing is not None and other_timing.fields["next"] == NOON_MS + 30_000


def test_what_is_said_at_run_time_wins_until_it_is_taken_back() -> None:
    code, own = a_schedule(every=60), a_schedule(every=30)
    both = SchedulePlan(rev=1, code=code, own=own, next_ms=NOON_MS + 30_000)

    new_code = declare_schedule(both, "code", a_schedule(every=10), NOON_MS)
    taken_back = declare_schedule(both, "own", None, NOON_MS)

    assert both.schedule == own
    assert new_code is not None and new_code.fields["next"] == NOON_MS + 30_000
    assert taken_back is not None and taken_back.fields["next"] == NOON_MS + 60_000


def test_a_schedule_that_nobody_speaks_of_is_dropped() -> None:
    change = declare_schedule(SchedulePlan(rev=1, own=a_schedule(every=60)), "own", None, NOON_MS)

    assert change is not None and change.drop


def test_a_pause_is_not_caught_up() -> None:
    plan = SchedulePlan(rev=1, code=a_schedule(every=60), next_ms=NOON_MS)
    pause = pause_plan(plan, NOON_MS)
    assert pause is not None and pause.due_ms is None

    change = resume_plan(replace(plan, paused_ms=NOON_MS), NOON_MS + 600_005)

    assert change is not None
    assert change.due_ms == change.fields["next"] == NOON_MS + 660_000
    assert pause_plan(replace(plan, paused_ms=1), NOON_MS) is None
    assert resume_plan(plan, NOON_MS) is None


def test_a_plan_survives_being_written_down() -> None:
    plan = SchedulePlan(
        0,
        a_schedule(every=60),
        a_schedule(cron="0 9 * * *", jitter=5),
        1,
        2,
        3,
        4,
        "job",
        "manual",
        5,
        6,
        7,
        8,
    )

    fields = {
        name.encode(): value if isinstance(value, bytes) else str(value).encode()
        for name, value in fields_of(plan).items()
    }

    assert plan_of(plan.schedule.name if plan.schedule else "", fields) == plan


def test_a_plan_that_cannot_be_read_says_so() -> None:
    with pytest.raises(ValueError, match="it cannot be read"):
        plan_of("s", {b"rev": b"1", b"code": b"{not json"})


def test_what_a_newer_version_has_added_is_passed_over() -> None:
    packed = pack_schedule(a_schedule(every=60)).replace(b"{", b'{"colour":"red",', 1)

    schedule = a_schedule(every=60)
    assert plan_of(schedule.name, {b"rev": b"1", b"code": packed}).schedule == schedule
