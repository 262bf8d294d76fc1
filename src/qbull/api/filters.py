"""Filters: which jobs are meant, from what a request says."""

from __future__ import annotations

from datetime import datetime

from qbull.api.auth import Caller
from qbull.api.context import ApiContext
from qbull.api.problems import ApiProblem, Wrong
from qbull.core.job_filter import JobFilterArguments
from qbull.views.jobs import FilterShape


def filters_of(site: ApiContext, caller: Caller, asked: FilterShape) -> JobFilterArguments:
    """Only what was said."""
    filters = JobFilterArguments()
    if asked.task is not None:
        filters["task"] = asked.task
    if asked.key is not None:
        filters["key"] = asked.key
    if asked.error_contains is not None:
        filters["error_contains"] = asked.error_contains
    if asked.fingerprint is not None:
        filters["fingerprint"] = asked.fingerprint
    if asked.payload is not None:
        field, _, value = asked.payload.partition("=")
        site.veil.refuse_asking(caller, field)
        filters["payload"] = {field: value}
    if asked.after is not None:
        filters["after"] = moment_in("after", asked.after)
    if asked.before is not None:
        filters["before"] = moment_in("before", asked.before)
    return filters


def moment_in(field: str, text: str) -> datetime:
    """A moment with its time zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.utcoffset() is None:
        why = "is no moment; write it like 2030-01-31T12:00:00Z"
        raise ApiProblem(400, f"{field}: {why}", errors=[Wrong(field, why)])
    return at
