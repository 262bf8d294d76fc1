"""The backoff that every retry in the package shares."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from qbull.core.backoff import ExponentialBackoff, jittered


def test_delays_double_up_to_the_maximum() -> None:
    backoff = ExponentialBackoff(first_seconds=0.25, max_seconds=3.0)

    assert list(islice(backoff.delays(), 6)) == [0.25, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_process_that_dies_for_days_still_has_a_delay() -> None:
    backoff = ExponentialBackoff(first_seconds=0.25, max_seconds=30.0)

    assert backoff.delay(10_000_000) == 30.0


@given(st.floats(0.001, 100), st.floats(0, 1))
def test_a_jittered_delay_stays_within_its_bounds(seconds: float, jitter: float) -> None:
    delay = jittered(seconds, jitter)

    assert seconds * (1 - jitter) * 0.999 <= delay <= seconds * (1 + jitter) * 1.001
