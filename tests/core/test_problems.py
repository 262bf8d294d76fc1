"""Problems: what is said when, whatever happens how often."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qbull.core.problems import (
    MAX_OPEN_PROBLEMS,
    AlertNotification,
    AlertPolicy,
    AlertState,
    CounterReading,
    GaugeReading,
    Problem,
    evaluate_problems,
    text_of,
)
from qbull.core.rate import Rate

POLICY = AlertPolicy(every_ms=300_000, rate=Rate(5, per=300))
SECOND = 1000


def failed(value: int, queue: str = "email", *, left: int | None = 1) -> CounterReading:
    return CounterReading(Problem("failed", queue), value, first=0, left=left)


def stale(there: bool, queue: str = "email") -> GaugeReading:
    return GaugeReading(Problem("stale", queue), there)


def run(
    *steps: tuple[int, list[CounterReading | GaugeReading]], policy: AlertPolicy = POLICY
) -> list[tuple[str, str]]:
    """What is said, in order: the status and the words of each problem."""
    state, said = AlertState(), []
    for at, readings in steps:
        state, message = evaluate_problems(state, readings, 1_000_000_000 + at * SECOND, policy)
        said += [(one.status, text_of(one)) for one in (message.said if message else [])]
    return said


def test_the_first_failure_is_said_at_once_and_the_others_together() -> None:
    said = run((0, [failed(1)]), (2, [failed(5_000)]), (299, [failed(9_000)]), (301, [failed(10_000)]))

    assert said == [("firing", "1 job failed permanently"), ("still", "10,000 jobs failed permanently")]


def test_what_goes_on_is_said_again_ever_less_often() -> None:
    day = 86_400
    steps = [(at, [failed(at)]) for at in range(1, day, 60)]

    said = run(*steps)

    assert 24 <= len(said) <= 30


def test_dead_letters_that_nobody_touches_are_never_called_resolved() -> None:
    said = run(
        (0, [failed(1)]), (10, [failed(7, left=7)]), (311, [failed(7, left=7)]), (90_000, [failed(7, left=7)])
    )

    assert said == [("firing", "1 job failed permanently"), ("still", "7 jobs failed permanently")]


def test_what_was_dealt_with_is_resolved_at_once_with_its_count() -> None:
    said = run((0, [failed(3, left=3)]), (5, [failed(3, left=0)]), (6, [failed(4, left=1)]))

    assert said == [
        ("firing", "3 jobs failed permanently"),
        ("resolved", "all dealt with; 3 jobs had failed permanently"),
        ("firing", "1 job failed permanently"),
    ]


def test_older_dead_letters_do_not_hold_up_the_good_news() -> None:
    said = run((0, [failed(2, left=42)]), (5, [failed(2, left=41)]), (6, [failed(2, left=40)]))

    assert [status for status, _ in said] == ["firing", "resolved"]


def test_a_failure_after_a_quiet_time_is_said_at_once_as_a_new_one() -> None:
    said = run((0, [failed(3)]), (200, [failed(5)]), (301, [failed(5)]), (702, [failed(6)]))

    assert said == [
        ("firing", "3 jobs failed permanently"),
        ("still", "5 jobs failed permanently"),
        ("firing", "1 job failed permanently"),
    ]


def test_what_nobody_can_deal_with_is_forgotten_without_a_message() -> None:
    said = run((0, [failed(1, left=None)]), (301, [failed(1, left=None)]), (302, [failed(2, left=None)]))

    assert said == [("firing", "1 job failed permanently"), ("firing", "1 job failed permanently")]


def test_a_level_that_goes_for_a_bad_reason_is_not_called_resolved() -> None:
    said = run((0, [stale(True)]), (2, [GaugeReading(Problem("stale", "email"), False, resolved=False)]))

    assert [status for status, _ in said] == ["firing"]


def test_a_level_is_said_when_it_comes_and_when_it_goes() -> None:
    said = run(
        (0, [stale(False)]), (2, [stale(True)]), (4, [stale(True)]), (6, [stale(False)]), (8, [stale(False)])
    )

    assert [status for status, _ in said] == ["firing", "resolved"]


def test_problems_of_one_moment_are_one_message() -> None:
    readings = [failed(1, f"q{n}") for n in range(30)]

    state, message = evaluate_problems(AlertState(), readings, 10**12, POLICY)

    assert isinstance(message, AlertNotification) and len(message.said) == 10 and message.more == 20
    assert evaluate_problems(state, readings, 10**12 + 2000, POLICY)[1] is None


def test_more_problems_than_can_be_known_are_not_lost() -> None:
    readings = [failed(1, f"q{n}") for n in range(MAX_OPEN_PROBLEMS + 1)]

    state, _ = evaluate_problems(AlertState(), readings, 10**12, POLICY)
    assert len(state.open) == MAX_OPEN_PROBLEMS and f"failed q{MAX_OPEN_PROBLEMS}" not in state.totals
    rested = [CounterReading(total.problem, 1, 0, left=0) for total in readings[:MAX_OPEN_PROBLEMS]]
    state, _ = evaluate_problems(state, rested, 10**12 + 2000, POLICY)
    state, message = evaluate_problems(state, readings, 10**12 + 4000, POLICY)

    assert message is not None and [one.problem.queue for one in message.said] == [f"q{MAX_OPEN_PROBLEMS}"]


def test_a_server_that_has_lost_its_data_begins_anew() -> None:
    said = run((0, [failed(100)]), (2, [failed(3)]), (400, [failed(4)]))

    assert said == [("firing", "100 jobs failed permanently"), ("still", "104 jobs failed permanently")]


def test_a_clock_that_jumps_back_silences_nobody() -> None:
    said = run((5000, [failed(1)]), (0, [failed(2)]))

    assert [status for status, _ in said] == ["firing", "still"]


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 4), st.integers(0, 3000)), max_size=200))
def test_no_window_has_more_messages_than_allowed_and_every_failure_is_counted(
    events: list[tuple[int, int, int]],
) -> None:
    state, now, totals, sent = AlertState(), 10**12, [0] * 5, list[int]()
    for seconds, queue, more in events:
        now += seconds * SECOND
        totals[queue] += more
        state, message = evaluate_problems(
            state, [failed(n, f"q{i}") for i, n in enumerate(totals)], now, POLICY
        )
        sent += [now] if message else []

    assert all(sum(at <= one < at + 300 * SECOND for one in sent) <= 5 for at in sent)
    for queue, total in enumerate(totals):
        assert state.totals[f"failed q{queue}"] == total if events else True
