"""When an acknowledged kind of error needs attention again."""

from __future__ import annotations

import pytest

from qbull.core.acknowledgement import (
    MIN_JUMP_FAILURES,
    QUIET_MS,
    Acknowledgement,
    busiest_window,
    series_start,
)
from qbull.core.record import to_datetime

AT_MINUTE = 30_000_000
AT_MS = AT_MINUTE * 60_000
HOUR = 60


def known(recent: int = 0) -> Acknowledgement:
    return Acknowledgement("ada", to_datetime(AT_MS), "ticket 4711", recent)


def test_it_counts_while_the_kind_fails_as_before() -> None:
    minutes = {AT_MINUTE + n: 10 for n in range(-60, 600)}
    assert known(recent=100).returned(AT_MS - 1, minutes) is None


def test_it_counts_while_there_is_no_failure() -> None:
    assert known().returned(AT_MS - QUIET_MS, {}) is None


def test_a_kind_returns_when_it_fails_again_after_a_quiet_time() -> None:
    assert known().returned(AT_MS + 1, {AT_MINUTE + 90: 1}) == "reappeared"


@pytest.mark.parametrize(
    ("recent", "failures", "jumps"),
    [(100, 300, False), (100, 301, True), (0, MIN_JUMP_FAILURES, False), (0, MIN_JUMP_FAILURES + 1, True)],
)
def test_a_kind_returns_when_its_rate_jumps(recent: int, failures: int, jumps: bool) -> None:
    spread = {AT_MINUTE + 100 + n: failures // 10 + (n < failures % 10) for n in range(10)}
    assert known(recent).returned(AT_MS, spread) == ("rate" if jumps else None)


def test_failures_before_it_was_acknowledged_are_no_jump() -> None:
    assert known().returned(AT_MS, {AT_MINUTE: 10_000, AT_MINUTE - 5: 10_000}) is None


def test_the_busiest_minutes_may_be_anywhere() -> None:
    assert busiest_window({}) == 0
    assert busiest_window({1: 5, 10: 5, 11: 5, 30: 9}) == 10


def test_the_series_of_partitions_join_unless_there_was_a_quiet_time() -> None:
    assert series_start([]) == 0
    assert series_start([(5 * QUIET_MS, 6 * QUIET_MS), (QUIET_MS, 4 * QUIET_MS + 1)]) == QUIET_MS
    assert series_start([(QUIET_MS, 2 * QUIET_MS), (3 * QUIET_MS, 3 * QUIET_MS)]) == 3 * QUIET_MS
    assert series_start([(QUIET_MS, 9 * QUIET_MS), (3 * QUIET_MS, 3 * QUIET_MS)]) == QUIET_MS
