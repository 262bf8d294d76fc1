"""What was found out about a job becomes reasons: the first is what to look at first, and every one has words."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from qbull.core.rate import Rate
from qbull.core.record import ExtendedBody
from qbull.core.why import MAX_AHEAD_COUNT, JobFacts, LaneHolder, ReasonCode, explain

BODY = ExtendedBody("send", b"{}", key="a")
HELD_UP = {"serving": 1, "reading": 1, "tasks": frozenset({"send"})}


def kinds(**facts: Any) -> list[str]:
    why = explain("j1", JobFacts("email", facts.pop("state", "waiting"), BODY, **HELD_UP | facts))
    assert all(reason.text for reason in why.reasons)
    return [reason.code for reason in why.reasons]


def test_nothing_holds_it_up() -> None:
    assert kinds() == ["next"]


def test_a_job_of_a_lane_is_not_told_of_limits_that_do_not_concern_it_yet() -> None:
    front = LaneHolder("j0", "active", "w1", 1)

    assert kinds(front=front, max_active=1, used_slots=1, before=3) == ["behind"]


def test_several_reasons_come_in_the_order_in_which_to_look_at_them() -> None:
    assert kinds(rate=Rate(1, 60), next_start_ms=10, max_active=1, used_slots=1, before=2) == [
        "rate",
        "limit",
        "line",
    ]


def test_the_front_of_a_lane_that_was_not_found_is_not_named() -> None:
    why = explain("j1", JobFacts("email", "waiting", BODY, front=LaneHolder(None, None, None, 0), **HELD_UP))

    assert str(why) == 'others of its key "a" come first'


def test_a_number_that_was_not_counted_to_its_end_says_so() -> None:
    why = explain("j1", JobFacts("email", "waiting", BODY, before=MAX_AHEAD_COUNT + 1, **HELD_UP))

    assert str(why) == "more than 1,000 others come first"


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "state": st.sampled_from(["waiting", "delayed", "active", "completed", "failed", "cancelled"]),
            "serving": st.integers(0, 2),
            "reading": st.integers(0, 2),
            "before": st.integers(0, 2000),
            "front": st.sampled_from(
                [
                    None,
                    LaneHolder(None, None, None, 0),
                    *(
                        LaneHolder("j0", s, "w", 1)
                        for s in ("active", "waiting", "delayed", "failed", "completed")
                    ),
                ]
            ),
            "slots": st.integers(0, 3),
            "active": st.integers(0, 3),
            "max_active": st.sampled_from([None, 1, 2]),
            "used_slots": st.integers(0, 3),
            "holds_lane": st.booleans(),
            "lane_rate": st.sampled_from([None, Rate(1, 1)]),
        },
    )
)
def test_there_is_always_a_reason_and_every_one_has_a_kind_and_words(facts: dict[str, Any]) -> None:
    assert set(facts) <= {field.name for field in fields(JobFacts)}

    found = kinds(**facts)

    assert found
    assert set(found) <= set(get_args(ReasonCode))
