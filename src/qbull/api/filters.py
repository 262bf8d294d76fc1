"""Filters: turn the filter parameters of a request into a job filter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_never, cast

from qbull.api.auth import Caller
from qbull.api.context import ApiContext
from qbull.api.problems import ApiProblem, InvalidField
from qbull.core.job_filter import JOB_FILTERS, JobFilterArguments
from qbull.core.moment import MOMENT_EXAMPLES, parse_moment
from qbull.views.jobs import FilterShape


def filters_of(context: ApiContext, caller: Caller, asked: FilterShape) -> JobFilterArguments:
    """The filters that a request names. They work on errors and keys as they are shown."""
    filters: dict[str, Any] = {}
    for name, field in JOB_FILTERS.items():
        value = getattr(asked, name)
        if value is None:
            continue
        context.redaction.refuse_hidden_filter(caller, name)
        match field.kind:
            case "text":
                filters[name] = value
            case "time":
                filters[name] = past_moment(name, value)
            case "payload":
                path, _, expected = value.partition("=")
                context.redaction.refuse_hidden_filter(caller, name, path)
                filters[name] = {path: expected}
            case _:
                assert_never(field.kind)
    if filters and context.redaction.has_hidden_fields:
        filters["hidden"] = context.redaction.fields
    return cast(JobFilterArguments, filters)


def past_moment(field: str, text: str) -> datetime:
    """Parse a time as people write it, or refuse the field."""
    try:
        return parse_moment(text, datetime.now(UTC), UTC)
    except (ValueError, OverflowError):
        why = f"is no time; write it like {MOMENT_EXAMPLES}"
        raise ApiProblem(400, f"{field}: {why}", errors=[InvalidField(field, why)]) from None


def moment_in(field: str, text: str) -> datetime:
    """Parse a time with its zone, or refuse the field."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.utcoffset() is None:
        why = "is no time; write it like 2030-01-31T12:00:00Z"
        raise ApiProblem(400, f"{field}: {why}", errors=[InvalidField(field, why)])
    return at
