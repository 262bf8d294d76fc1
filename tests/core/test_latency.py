"""Latency: counts by minute become steps of a chart, and percentiles that lie in the right bucket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qbull.core.histograms import Histograms
from qbull.core.latency import MAX_PERIOD_STEPS, SPANS, by_step, latest, percentiles, period_between, together

READY_MS = 1_700_000_000_000


def test_minutes_are_summed_into_the_steps_of_a_day() -> None:
    form = SPANS["24h"]
    slices = {100: {"d:20:send": 2, "v:10:send": 2}, 105: {"d:21:send": 1}, 110: {"d:20:other": 1}}

    steps = by_step(slices, form)

    assert set(steps) == {10, 11}
    assert steps[10]["send"].runs == {20: 2, 21: 1}
    assert steps[10]["send"].waits == {10: 2}
    assert together(steps[10].values()).runs.total() == 3


def test_foreign_names_and_sums_are_left_out() -> None:
    steps = by_step({7: {"d:64:send": 9_000, "d:x:send": 1, "nonsense": 3}}, SPANS["1h"])

    assert together(steps[7].values()).runs.total() == 0


def test_a_task_may_have_colons_in_its_name() -> None:
    assert set(by_step({7: {"d:20:a:b": 1}}, SPANS["1h"])[7]) == {"a:b"}


def test_every_chart_ends_with_the_step_of_now() -> None:
    now_ms = 1_700_000_123_456
    for span, form in SPANS.items():
        last = latest(now_ms, span).first + form.steps - 1
        assert last * form.step_seconds * 1000 <= now_ms < (last + 1) * form.step_seconds * 1000


def test_a_chosen_period_has_the_finest_steps_that_are_kept() -> None:
    now = 1_700_000_000
    steps = {
        (now - 3600, now): 60,
        (now - 20 * 3600, now - 19 * 3600): 60,
        (now - 6 * 3600, now): 300,
        (now - 23 * 3600, now): 600,
        (now - 26 * 3600, now - 25 * 3600): 3600,
        (now - 7 * 86_400, now): 3600,
        (now - 20 * 86_400, now): 21_600,
    }

    assert {period: period_between(*period, now).form.step_seconds for period in steps} == steps


@given(st.integers(0, 1_700_000_000), st.integers(1, 1_700_000_000))
def test_a_chosen_period_is_bounded_and_has_its_first_and_last_second(start: int, length: int) -> None:
    now = 1_700_000_000
    period = period_between(start, start + length, now)

    first = period.first * period.form.step_seconds
    after = first + period.form.steps * period.form.step_seconds
    assert 1 <= period.form.steps <= MAX_PERIOD_STEPS
    kept = max(start, now - 30 * 86_400)
    if start + length > kept:
        assert first <= kept and after >= min(start + length, now + 1)


@given(st.lists(st.floats(0.000_002, 3600), min_size=1, max_size=200))
def test_a_percentile_is_exact_to_its_bucket(seconds: list[float]) -> None:
    counted = Histograms()
    for one in seconds:
        counted.ended("send", 0.0, one, READY_MS)
    runs = together(by_step({0: counted.take()}, SPANS["1h"])[0].values()).runs
    ordered = sorted(int(one * 1e6) for one in seconds)

    for share, told in zip((0.5, 0.95, 0.99), percentiles(runs), strict=True):
        at = min(max(-(-len(ordered) * share // 1), 1), len(ordered))
        true_us = ordered[int(at) - 1]
        assert told is not None
        assert true_us / 2.1 <= told * 1000 <= max(true_us * 2.1, 4)


def test_waits_are_counted_for_each_task() -> None:
    counted = Histograms()
    counted.origin = READY_MS / 1000
    counted.ended("send", 1.0, 1.5, READY_MS)
    counted.ended("other", 2.0, 2.5, READY_MS)

    [step] = by_step({0: counted.take()}, SPANS["1h"]).values()

    assert {task: one.waits.total() for task, one in step.items()} == {"send": 1, "other": 1}
