"""Cascades: the error of a job of a flow that failed with another leads to the first one."""

from __future__ import annotations

import pytest

from qbull.core.cascades import first_failed_job, root_cause

CASES = [
    ('job 01a1e44a (reserve) of queue "orders" failed: LookupError: sold out', "LookupError: sold out"),
    (
        'job 1 (ship) of queue "orders" failed: job 2 (reserve) of queue "orders" failed: LookupError: 0 left',
        "LookupError: 0 left",
    ),
    ("LookupError: sold out", None),
    ('ValueError: job 1 (ship) of queue "orders" failed: x', None),
]


@pytest.mark.parametrize(("error", "cause"), CASES)
def test_the_cause_is_the_error_of_the_first_job(error: str, cause: str | None) -> None:
    assert root_cause(error) == cause


FIRST = [("orders", "01a1e44a"), ("orders", "2"), None, None]


@pytest.mark.parametrize(("number", "first"), list(enumerate(FIRST)))
def test_the_first_job_is_known_by_queue_and_id(number: int, first: tuple[str, str] | None) -> None:
    assert first_failed_job(CASES[number][0]) == first
