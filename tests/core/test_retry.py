"""Retry: how often, and how long in between. `wait_before(2)` is the wait before the first retry."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.retry import Retry
from qbull.errors import ConfigError


def waits(retry: Retry, runs: int) -> list[float]:
    return [retry.wait_before(attempt) for attempt in range(2, runs + 1)]


def test_delays_alone_mean_one_run_more_than_there_are_delays() -> None:
    retry = Retry(delays=(1, 5, 15, 60, 300))

    assert retry.attempts == 6
    assert waits(retry, 6) == [1, 5, 15, 60, 300]


def test_more_attempts_than_delays_go_on_with_the_last_delay() -> None:
    retry = Retry(attempts=6, delays=(1, 2))

    assert waits(retry, 6) == [1, 2, 2, 2, 2]


def test_fewer_attempts_than_delays_use_the_first_ones() -> None:
    retry = Retry(attempts=2, delays=(1, 2, 3))

    assert retry.attempts == 2
    assert waits(retry, 2) == [1]


def test_exponential_backoff_doubles() -> None:
    retry = Retry(attempts=5, backoff="exponential", delay=5)

    assert waits(retry, 5) == [5, 10, 20, 40]


def test_fixed_backoff_stays() -> None:
    retry = Retry(attempts=4, backoff="fixed", delay=2)

    assert waits(retry, 4) == [2, 2, 2]


def test_exponential_is_what_you_get_without_choosing() -> None:
    retry = Retry(attempts=4)

    assert retry.backoff == "exponential"
    assert waits(retry, 4) == [1, 2, 4]


def test_max_delay_bounds_the_growth() -> None:
    retry = Retry(attempts=6, delay=5, max_delay=15)

    assert waits(retry, 6) == [5, 10, 15, 15, 15]


def test_max_delay_bounds_a_fixed_delay_too() -> None:
    assert waits(Retry(attempts=3, backoff="fixed", delay=100, max_delay=15), 3) == [15, 15]


def test_a_thousand_attempts_do_not_overflow() -> None:
    assert Retry(attempts=1001, delay=1, max_delay=60).wait_before(1001) == 60


def test_nothing_at_all_means_one_run() -> None:
    assert Retry().attempts == 1


def test_delays_may_be_given_as_a_list() -> None:
    assert Retry(delays=[1, 2]) == Retry(delays=(1, 2))  # type: ignore[arg-type]


@given(
    st.integers(2, 100),
    st.floats(0, 1),
    st.one_of(
        st.builds(lambda d: Retry(attempts=9, delay=d), st.floats(0, 1e6)),
        st.builds(lambda d: Retry(attempts=9, backoff="fixed", delay=d), st.floats(0, 1e6)),
        st.builds(lambda d: Retry(delays=d), st.lists(st.floats(0, 1e6), min_size=1).map(tuple)),
    ),
)
def test_jitter_stays_within_its_share_of_the_wait(attempt: int, jitter: float, plain: Retry) -> None:
    exact = plain.wait_before(attempt)
    spread = Retry(plain.attempts, plain.backoff, plain.delay, plain.max_delay, jitter, plain.delays)

    wait = spread.wait_before(attempt)

    assert exact * (1 - jitter) * 0.999999 <= wait <= exact * (1 + jitter) * 1.000001


def test_jitter_really_spreads() -> None:
    retry = Retry(attempts=2, backoff="fixed", delay=10, jitter=0.5)

    seen = {retry.wait_before(2) for _ in range(100)}

    assert len(seen) > 50


@given(st.integers(2, 200), st.floats(0, 1e8), st.floats(0, 1e8))
def test_no_wait_without_jitter_is_longer_than_max_delay(attempt: int, delay: float, longest: float) -> None:
    assert 0 <= Retry(attempts=3, delay=delay, max_delay=longest).wait_before(attempt) <= longest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"attempts": -1}, "runs at least once"),
        ({"backoff": "linear"}, 'use "exponential" or "fixed"'),
        ({"delay": -1}, "must not be negative"),
        ({"max_delay": -1}, "must not be negative"),
        ({"delays": (1, -1)}, "must not be negative"),
        ({"delay": float("nan")}, "delay"),
        ({"max_delay": float("nan")}, "delay"),
        ({"delays": (float("inf"),)}, "delay"),
        ({"jitter": -0.1}, "from 0 to 1"),
        ({"jitter": 1.1}, "from 0 to 1"),
        ({"jitter": float("nan")}, "from 0 to 1"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        Retry(**wrong)

    assert "\n" not in str(refused.value)
