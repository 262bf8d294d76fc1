"""Figures: every duration falls into the bucket it belongs to, and nothing is counted twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qbull.core.histograms import STARTED_FIELD, SUM_INDEX, Histogram, Histograms, quantile, read

READY_MS = 1_700_000_000_000


def test_what_was_counted_is_taken_once() -> None:
    figures = Histograms()
    figures.started = 2
    figures.origin = READY_MS / 1000
    figures.ended("send", 1.0, 1.25, READY_MS)
    figures.ended("send", 2.0, 2.5, READY_MS)

    taken = figures.take()
    durations, waits = read(taken)

    assert taken[STARTED_FIELD] == 2 and figures.take() == {}
    assert (durations["send"].count, durations["send"].sum) == (2, 0.75)
    assert (waits.count, waits.sum) == (2, 3.0)


def test_without_the_servers_clock_no_wait_is_guessed() -> None:
    figures = Histograms()
    figures.ended("send", 1.0, 1.25, READY_MS)

    assert read(figures.take())[1].count == 0


def test_a_clock_that_is_behind_makes_no_negative_wait() -> None:
    figures = Histograms()
    figures.origin = READY_MS / 1000 - 10
    figures.ended("send", 1.0, 1.25, READY_MS)

    assert (read(figures.take())[1].count, read(figures.take())[1].sum) == (1, 0.0)


@given(st.lists(st.integers(0, 2**45), max_size=50))
def test_each_bucket_counts_what_is_not_above_it(durations_us: list[int]) -> None:
    figures = Histograms()
    for us in durations_us:
        figures.ended("send", 0.0, us / 1e6, READY_MS)
    read_back = read(figures.take())[0]
    histogram = read_back.get("send", Histogram({}))

    previous = 0
    for upper, count in histogram.buckets():
        exact = sum(int(us / 1e6 * 1e6) < upper * 1e6 for us in durations_us)
        assert count == exact and count >= previous
        previous = count
    assert histogram.count == len(durations_us)


def test_names_of_tasks_may_have_anything_in_them() -> None:
    durations, _ = read({"d:7:a:b": 3, f"d:{SUM_INDEX}:a:b": 99, "d:x:y": 1, "nonsense": 1, "d:400:t": 1})

    assert {task: (one.count, one.sum) for task, one in durations.items()} == {"a:b": (3, 99 / 1e6)}


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.sampled_from((0.5, 0.95, 1.0)))
def test_a_quantile_is_in_the_bucket_of_the_wait_it_means(waits: list[int], part: float) -> None:
    counted: dict[int, int] = {}
    for us in waits:
        counted[us.bit_length()] = counted.get(us.bit_length(), 0) + 1

    found = quantile(counted, part)

    rank = max(-(-len(waits) * part // 1), 1)
    meant = sorted(waits)[int(rank) - 1]
    assert found is not None and found <= (1 << meant.bit_length()) / 1000
    assert found >= (0 if meant == 0 else (1 << (meant.bit_length() - 1)) / 1000)


def test_without_counts_there_is_no_quantile() -> None:
    assert quantile({}, 0.5) is None
