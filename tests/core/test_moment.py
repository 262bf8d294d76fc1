"""Times and durations as people type them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.moment import SECONDS_OF_UNIT, parse_duration, parse_moment

NOW = datetime(2030, 3, 31, 12, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("2h", NOW - timedelta(hours=2)),
        ("30m", NOW - timedelta(minutes=30)),
        ("1.5d", NOW - timedelta(hours=36)),
        ("today", datetime(2030, 3, 31, tzinfo=UTC)),
        ("Yesterday", datetime(2030, 3, 30, tzinfo=UTC)),
        ("2030-01-31", datetime(2030, 1, 31, tzinfo=UTC)),
        ("2030-01-31T12:00:00Z", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        (
            " 2030-01-31 12:00+02:00 ",
            datetime(2030, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))),
        ),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, expected: datetime) -> None:
    assert parse_moment(text, NOW, UTC) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("2h", NOW + timedelta(hours=2)),
        ("tomorrow", datetime(2030, 4, 1, tzinfo=UTC)),
        ("2030-04-02", datetime(2030, 4, 2, tzinfo=UTC)),
        ("2030-04-02T12:00:00Z", datetime(2030, 4, 2, 12, tzinfo=UTC)),
    ],
)
def test_a_duration_counts_from_now_on_if_a_coming_time_is_asked_for(text: str, expected: datetime) -> None:
    assert parse_moment(text, NOW, UTC, is_coming=True) == expected


def test_an_error_shows_what_a_duration_means() -> None:
    with pytest.raises(ValueError, match="two hours ago"):
        parse_moment("soon", NOW, UTC)
    with pytest.raises(ValueError, match="in two hours"):
        parse_moment("soon", NOW, UTC, is_coming=True)


def test_a_day_starts_at_midnight_of_its_own_zone_also_when_the_clocks_change() -> None:
    assert parse_moment("today", NOW, BERLIN) == datetime(2030, 3, 30, 23, tzinfo=UTC)
    assert parse_moment("yesterday", NOW, BERLIN) == datetime(2030, 3, 29, 23, tzinfo=UTC)
    assert parse_moment("2030-04-01", NOW, BERLIN) == datetime(2030, 3, 31, 22, tzinfo=UTC)


def test_without_a_zone_it_is_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert parse_moment("2030-01-31", NOW, None) == datetime(2030, 1, 30, 23, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "soon", "12", "h", "2 h", "2030-13-01", "2y", "-2h", "٢h"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_moment(text, NOW, UTC)


def test_a_time_of_day_needs_its_zone() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        parse_moment("2030-01-31T12:00", NOW, UTC)


@given(st.integers(0, 500), st.sampled_from(sorted(SECONDS_OF_UNIT)))
def test_a_duration_is_a_number_and_a_unit(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * SECONDS_OF_UNIT[unit]
    assert parse_moment(f"{number}{unit}", NOW, UTC) == NOW - timedelta(
        seconds=number * SECONDS_OF_UNIT[unit]
    )


def test_a_duration_without_a_unit_is_in_seconds() -> None:
    assert parse_duration("90") == parse_duration("1.5m") == 90


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e3", "-1", "2 hours", "999999999w"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|is longer than ten years"):
        parse_duration(text)
