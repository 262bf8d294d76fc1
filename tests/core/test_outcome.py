"""What becomes of a job whose task raised something: the table that is the whole retry policy."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.outcome import Dead, Delay, Undeliverable, decide, describe
from qbull.core.retry import Retry
from qbull.errors import Fail, RetryAfter

THREE = Retry(delays=(1, 5))


@pytest.mark.parametrize(
    ("error", "attempt", "outcome"),
    [
        (ValueError("boom"), 1, Delay(1, "ValueError: boom")),
        (ValueError("boom"), 2, Delay(5, "ValueError: boom")),
        (ValueError("boom"), 3, Dead("ValueError: boom")),
        (ValueError("boom"), 4, Dead("ValueError: boom")),
        (ValueError(), 1, Delay(1, "ValueError")),
        (RetryAfter(30), 1, Delay(30, "asked to be run again in 30 s")),
        (RetryAfter(30, "quota"), 1, Delay(30, "quota")),
        (RetryAfter(30), 3, Delay(30, "asked to be run again in 30 s")),
        (RetryAfter(0), 99, Delay(0, "asked to be run again in 0 s")),
        (Fail("no such user"), 1, Dead("no such user")),
        (Fail("no such user"), 3, Dead("no such user")),
        (Fail(), 1, Dead("no message")),
        (Undeliverable("no such task"), 1, Dead("no such task")),
        (TimeoutError("too slow"), 1, Delay(1, "TimeoutError: too slow")),
        (asyncio.CancelledError("gone"), 3, Dead("CancelledError: gone")),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), 1, Delay(1, "ExceptionGroup: two (2 sub-exceptions)")),
        (KeyError("user"), 1, Delay(1, "KeyError: 'user'")),
    ],
)  # fmt: skip
def test_each_ending_has_its_outcome(error: BaseException, attempt: int, outcome: Delay | Dead) -> None:
    assert decide(error, attempt, 3, THREE) == outcome


def test_a_task_may_ask_for_more_with_its_own_kinds_of_error() -> None:
    class QuotaUsedUp(RetryAfter):
        pass

    class UserGone(Fail):
        pass

    assert decide(QuotaUsedUp(7), 9, 1, THREE) == Delay(7, "asked to be run again in 7 s")
    assert decide(UserGone("u1"), 1, 9, THREE) == Dead("u1")


def test_the_jobs_own_number_of_attempts_counts_not_the_rules() -> None:
    assert decide(ValueError("x"), 3, 5, THREE) == Delay(5, "ValueError: x")
    assert decide(ValueError("x"), 1, 1, THREE) == Dead("ValueError: x")


errors = st.one_of(
    st.builds(ValueError, st.text()),
    st.builds(Fail, st.text()),
    st.builds(Undeliverable, st.text()),
    st.builds(TimeoutError),
)


@given(errors, st.integers(1, 50), st.integers(1, 50))
def test_no_error_but_retry_after_goes_beyond_the_attempts(
    error: Exception, attempt: int, attempts: int
) -> None:
    outcome = decide(error, attempt, attempts, Retry(attempts=attempts, delay=1))

    if attempt >= attempts:
        assert isinstance(outcome, Dead)


@given(errors, st.integers(1, 50))
def test_a_job_that_keeps_failing_ends_after_exactly_its_attempts(error: Exception, attempts: int) -> None:
    runs = 1

    while isinstance(decide(error, runs, attempts, Retry(attempts=attempts, delay=0)), Delay):
        runs += 1

    assert runs == (1 if isinstance(error, Fail | Undeliverable) else attempts)


@given(st.floats(0, 1e8), st.integers(1, 1000), st.integers(1, 50))
def test_retry_after_is_always_granted_as_asked(seconds: float, attempt: int, attempts: int) -> None:
    outcome = decide(RetryAfter(seconds), attempt, attempts, THREE)

    assert isinstance(outcome, Delay)
    assert outcome.seconds == seconds


@given(errors, st.integers(1, 9))
def test_a_reason_is_always_given(error: Exception, attempt: int) -> None:
    assert decide(error, attempt, 3, THREE).error


def test_a_long_reason_is_cut() -> None:
    reason = describe(ValueError("x" * 1_000_000))

    assert len(reason) < 2100
    assert reason.endswith(" …")


def test_a_reason_can_always_be_written_down() -> None:
    reason = describe(ValueError("caf\udce9.txt"))  # as os.listdir() gives a name that is not UTF-8

    unwritable = [hex(ord(character)) for character in reason if "\ud800" <= character <= "\udfff"]
    assert unwritable == []


def test_an_error_that_cannot_be_shown_is_named_all_the_same() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "Unspeakable" in describe(Unspeakable())


@pytest.mark.parametrize("delay", [-1, -0.001, float("nan"), float("inf"), 1e300])
def test_asking_for_no_possible_moment_is_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="RetryAfter"):
        RetryAfter(delay)
