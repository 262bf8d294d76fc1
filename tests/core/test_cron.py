"""When schedules tick: expressions, zones, and the days on which the clocks change."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.cron import Cron, Interval, check_expression, in_zone, zone_of

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
LORD_HOWE, CORDOBA = "Australia/Lord_Howe", "America/Argentina/Cordoba"


def ticks(expression: str, zone: str, since: str, until: str) -> list[str]:
    """The ticks of local times from `since` (not included) up to `until`: day, time and offset."""
    cron = Cron(expression, zone)
    at = _ms(datetime.fromisoformat(since).replace(tzinfo=ZoneInfo(zone)))
    end = _ms(datetime.fromisoformat(until).replace(tzinfo=ZoneInfo(zone)))
    found = []
    while (tick := cron.after(at)) is not None and tick <= end:
        found.append(f"{in_zone(tick, zone):%d %H:%M:%S %z}"[:-2])
        at = tick
    return found


@pytest.mark.parametrize(
    ("expression", "zone", "since", "until", "expected"),
    [
        pytest.param(
            "30 2 * * *", BERLIN, "2026-03-28T12:00", "2026-03-30T12:00",
            ["29 03:00:00 +02", "30 02:30:00 +02"],
            id="Berlin in March: 02:30 is leapt over, it comes when the clocks have leapt",
        ),
        pytest.param(
            "30 2 * * *", BERLIN, "2026-10-24T12:00", "2026-10-26T12:00",
            ["25 02:30:00 +02", "26 02:30:00 +01"],
            id="Berlin in October: 02:30 comes twice, the first one counts",
        ),
        pytest.param(
            "0 30 2 * * *", BERLIN, "2026-10-24T12:00", "2026-10-26T12:00",
            ["25 02:30:00 +02", "26 02:30:00 +01"],
            id="Berlin in October, with seconds",
        ),
        pytest.param(
            "*/30 * * * *", BERLIN, "2026-03-29T01:00", "2026-03-29T04:00",
            ["29 01:30:00 +01", "29 03:00:00 +02", "29 03:30:00 +02", "29 04:00:00 +02"],
            id="Berlin in March: every half hour of real time",
        ),
        pytest.param(
            "*/30 * * * *", BERLIN, "2026-10-25T01:30", "2026-10-25T03:00",
            ["25 02:00:00 +02", "25 02:30:00 +02", "25 02:00:00 +01", "25 02:30:00 +01", "25 03:00:00 +01"],
            id="Berlin in October: every half hour of real time",
        ),
        pytest.param(
            "15 * * * *", NEW_YORK, "2026-11-01T00:30", "2026-11-01T03:00",
            ["01 01:15:00 -04", "01 01:15:00 -05", "01 02:15:00 -05"],
            id="New York in November: every hour of real time",
        ),
        pytest.param(
            "30 1 * * *", NEW_YORK, "2026-10-31T12:00", "2026-11-02T12:00",
            ["01 01:30:00 -04", "02 01:30:00 -05"],
            id="New York in November: 01:30 comes twice, the first one counts",
        ),
        pytest.param(
            "30 2 * * *", NEW_YORK, "2026-03-07T12:00", "2026-03-09T12:00",
            ["08 03:00:00 -04", "09 02:30:00 -04"],
            id="New York in March: 02:30 is leapt over",
        ),
        pytest.param(
            "0 1,2,3 * * *", NEW_YORK, "2026-03-08T00:00", "2026-03-08T12:00",
            ["08 01:00:00 -05", "08 03:00:00 -04"],
            id="New York in March: what was leapt over and what is due then are one",
        ),
        pytest.param(
            "15 2 * * *", LORD_HOWE, "2026-10-03T12:00", "2026-10-05T12:00",
            ["04 02:30:00 +11", "05 02:15:00 +11"],
            id="Lord Howe in October: half an hour is leapt over",
        ),
        pytest.param(
            "45 1 * * *", LORD_HOWE, "2026-04-04T12:00", "2026-04-06T12:00",
            ["05 01:45:00 +11", "06 01:45:00 +10"],
            id="Lord Howe in April: half an hour comes twice",
        ),
        pytest.param(
            "*/30 * * * *", LORD_HOWE, "2026-04-05T01:00", "2026-04-05T02:30",
            ["05 01:30:00 +11", "05 01:30:00 +10", "05 02:00:00 +10", "05 02:30:00 +10"],
            id="Lord Howe in April: every half hour of real time",
        ),
        pytest.param(
            "*/10 3 * * *", LORD_HOWE, "2026-10-04T01:00", "2026-10-04T03:30",
            ["04 03:00:00 +11", "04 03:10:00 +11", "04 03:20:00 +11", "04 03:30:00 +11"],
            id="Lord Howe in October: the hour after the leap is complete",
        ),
        pytest.param(
            "30 2 * * *", CORDOBA, "2026-03-28T12:00", "2026-03-31T12:00",
            ["29 02:30:00 -03", "30 02:30:00 -03", "31 02:30:00 -03"],
            id="Córdoba: the clocks do not change",
        ),
        pytest.param(
            "*/30 * * * *", CORDOBA, "2026-10-25T01:30", "2026-10-25T03:00",
            ["25 02:00:00 -03", "25 02:30:00 -03", "25 03:00:00 -03"],
            id="Córdoba, every half hour",
        ),
    ],
)  # fmt: skip
def test_when_the_clocks_change(
    expression: str, zone: str, since: str, until: str, expected: list[str]
) -> None:
    assert ticks(expression, zone, since, until) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * *", ["01 09:00:00", "02 09:00:00", "03 09:00:00"]),
        ("0 9 * * 1-5", ["01 09:00:00", "02 09:00:00", "05 09:00:00"]),  # January 1st of 2026 is a Thursday
        ("0 9 * * MON", ["05 09:00:00", "12 09:00:00", "19 09:00:00"]),
        ("0 0 13 * FRI", ["02 00:00:00", "09 00:00:00", "13 00:00:00"]),
        ("0 0 L * *", ["31 00:00:00", "28 00:00:00", "31 00:00:00"]),
        ("0 0 * * FRI#2", ["09 00:00:00", "13 00:00:00", "13 00:00:00"]),
        ("*/20 * * * * *", ["01 00:00:20", "01 00:00:40", "01 00:01:00"]),
        ("@daily", ["02 00:00:00", "03 00:00:00", "04 00:00:00"]),
        ("@HOURLY", ["01 01:00:00", "01 02:00:00", "01 03:00:00"]),
        ("@weekly", ["04 00:00:00", "11 00:00:00", "18 00:00:00"]),
        ("  0   9  * * *  ", ["01 09:00:00", "02 09:00:00", "03 09:00:00"]),
    ],
)
def test_expressions(expression: str, expected: list[str]) -> None:
    cron, at, found = Cron(expression, "UTC"), _ms(datetime(2026, 1, 1, tzinfo=UTC)), []
    for _ in expected:
        at = cron.after(at) or 0
        found.append(f"{in_zone(at, 'UTC'):%d %H:%M:%S}")

    assert found == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("61 * * * *", 'its minute "61" cannot be read; give 0-59'),
        ("* 24 * * *", 'its hour "24" cannot be read; give 0-23'),
        ("* * 0 * *", 'its day-of-month "0" cannot be read'),
        ("* * * 13 *", 'its month "13" cannot be read'),
        ("* * * * 8", 'its day-of-week "8" cannot be read'),
        ("60 * * * * *", 'its second "60" cannot be read'),
        ("*/0 * * * *", 'its minute "*/0" cannot be read'),
        ("5-1 * * * *", 'its minute "5-1" cannot be read'),
        ("a b c d e", 'its minute "a" cannot be read'),
        ("* * *", "has 3 fields; give five"),
        ("* * * * * * *", "has 7 fields"),
        ("", "has 0 fields"),
        ("0 0 31 2 *", "never ticks"),
        ("0 0 30 2 *", "never ticks"),
        ("@reboot", "there is no such name; use one of @yearly"),
        (5, "give an expression"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        check_expression(expression)

    assert reason in str(refused.value)


@pytest.mark.parametrize("zone", ["Mars/Phobos", "", "Europe", "../etc/passwd", "/etc/localtime"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="there is no such time zone"):
        zone_of(zone)


def test_zones_are_there_on_a_machine_without_any() -> None:
    code = "from qbull.core.cron import Cron; print(Cron('0 9 * * *', 'Europe/Berlin').after(0))"

    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(run.stdout) == 8 * 3600 * 1000


@given(period=st.integers(100, 10**9), anchor=st.integers(0, 10**12), ms=st.integers(0, 2 * 10**12))
def test_every_is_the_same_for_everybody(period: int, anchor: int, ms: int) -> None:
    tick = Interval(period, anchor).after(ms)

    assert tick > ms or tick == anchor
    assert (tick - anchor) % period == 0
    assert tick - period <= max(ms, anchor)


# Against an oracle: it walks through real time minute by minute, and knows nothing of how ticks are found.

MINUTES = {
    "*/30": {0, 30},
    "*/7": set(range(0, 60, 7)),
    "15": {15},
    "0,45": {0, 45},
    "0": {0},
    "0-59": set(range(60)),
}
HOURS = {
    "*": set(range(24)),
    "*/2": set(range(0, 24, 2)),
    "2": {2},
    "0,1,2,3": {0, 1, 2, 3},
    "0": {0},
    "23": {23},
}
EXPRESSIONS = list(itertools.product(MINUTES, HOURS))


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE, CORDOBA, "Africa/Cairo", "Asia/Beirut", "America/St_Johns", "Pacific/Chatham", "Africa/Casablanca", "Europe/Dublin", "Antarctica/Troll"])  # fmt: skip
def test_every_change_of_the_clocks_in_two_years(zone: str) -> None:
    for change in _changes(zone, 2025, 2026):
        since, until = change - 12 * 3600, change + 14 * 3600
        walls = [
            (at, datetime.fromtimestamp(at, ZoneInfo(zone))) for at in range(since - since % 60, until, 60)
        ]
        for minute, hour in EXPRESSIONS:
            cron, at, found = Cron(f"{minute} {hour} * * *", zone), since * 1000, []
            while (tick := cron.after(at)) is not None and tick < until * 1000:
                found.append(tick // 1000)
                at = tick

            expected = _oracle(walls, minute, hour)
            assert found == [tick for tick in expected if since < tick < until], (minute, hour, zone, change)


@given(seed=st.integers(1_700_000_000, 1_900_000_000), zone=st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE]), rule=st.sampled_from(EXPRESSIONS))  # fmt: skip
def test_where_one_begins_to_look_changes_nothing(seed: int, zone: str, rule: tuple[str, str]) -> None:
    cron = Cron(f"{rule[0]} {rule[1]} * * *", zone)
    first = cron.after(seed * 1000)
    assert first is not None

    for begin in (seed, (seed + first // 1000) // 2, first // 1000 - 1):
        assert cron.after(begin * 1000) == first


def _oracle(walls: list[tuple[int, datetime]], minute: str, hour: str) -> list[int]:
    matches = [
        (at, wall) for at, wall in walls if wall.minute in MINUTES[minute] and wall.hour in HOURS[hour]
    ]
    if minute.startswith("*") or hour.startswith("*"):
        return [at for at, _ in matches]
    once: dict[tuple[date, int, int], int] = {}
    for at, wall in matches:
        once.setdefault((wall.date(), wall.hour, wall.minute), at)
    found = set(once.values())
    for (_, before), (at, after) in itertools.pairwise(walls):
        wall = before.replace(tzinfo=None) + timedelta(minutes=1)
        while wall < after.replace(tzinfo=None):  # leapt over
            if wall.minute in MINUTES[minute] and wall.hour in HOURS[hour]:
                found.add(at)
            wall += timedelta(minutes=1)
    return sorted(found)


def _changes(zone: str, first: int, last: int) -> list[int]:
    """The seconds at which the clocks of a zone change, found by looking at every quarter of an hour."""
    info = ZoneInfo(zone)
    start, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (first, last + 1))
    offsets = ((at, datetime.fromtimestamp(at, info).utcoffset()) for at in range(start, end, 900))
    found = [later for (_, a), (later, b) in itertools.pairwise(offsets) if a != b]
    return found or [start + 86_400]


def test_the_zones_of_these_tests_are_known() -> None:
    assert {BERLIN, NEW_YORK, LORD_HOWE, CORDOBA} <= zoneinfo.available_timezones()


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
