"""Wanted: which finished jobs are meant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from qbull.core.failures import fingerprint
from qbull.core.job_filter import JobFilter
from qbull.core.record import Body
from qbull.errors import ArgumentsError

BODY = Body(
    "charge",
    b'{"customer": "c99", "cents": 1250, "gift": false, "note": null, "items": [{"sku": "x"}]}',
    key="c99",
)
ERROR = "ConnectionError: no till for c17"


@pytest.mark.parametrize(
    ("filters", "accepted"),
    [
        ({}, True),
        ({"task": "charge"}, True),
        ({"task": "refund"}, False),
        ({"error_contains": "NO TILL"}, True),
        ({"error_contains": "no card"}, False),
        ({"fingerprint": fingerprint("ConnectionError: no till for c99")}, True),
        ({"fingerprint": "000000000000"}, False),
        ({"task": "charge", "error_contains": "no card"}, False),
        ({"key": "c99"}, True),
        ({"key": "c9"}, False),
        ({"payload": {"customer": "c99"}}, True),
        ({"payload": {"cents": "1250", "gift": "false", "note": "null"}}, True),
        ({"payload": {"cents": 1250, "items.0.sku": "x"}}, True),
        ({"payload": {"cents": 1251}}, False),
        ({"payload": {"cents": True}}, False),
        ({"payload": {"items.1.sku": "x"}}, False),
        ({"payload": {"items": "[]"}}, False),
        ({"payload": {"nothing": "null"}}, False),
    ],
)
def test_all_that_is_said_must_hold(filters: dict[str, Any], accepted: bool) -> None:
    assert JobFilter(**filters).accepts(BODY, ERROR) is accepted


def test_a_job_without_an_error_has_none_to_look_for() -> None:
    assert not JobFilter(error_contains="x").accepts(BODY, None)
    assert not JobFilter(fingerprint=fingerprint("")).accepts(BODY, None)
    assert JobFilter(task="charge").accepts(BODY, None)


@pytest.mark.parametrize(
    "filters", [{"task": ""}, {"error_contains": 5}, {"after": datetime(2030, 1, 1)}, {"fingerprint": ""}]
)
def test_what_makes_no_sense_is_refused(filters: dict[str, Any]) -> None:
    with pytest.raises(ArgumentsError, match=next(iter(filters))):
        JobFilter(**filters)


def test_moments_are_milliseconds() -> None:
    wanted = JobFilter(after=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))

    assert (wanted.after_ms, wanted.before_ms) == (1000, None)


def test_a_moment_lies_in_its_time_or_not() -> None:
    wanted = JobFilter(
        after=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), before=datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    )

    assert [wanted.within(ms) for ms in (999, 1000, 2000, 2001)] == [False, True, True, False]
    assert wanted.everything and not JobFilter(key="c99").everything
