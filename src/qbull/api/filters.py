"""Filters: turn the filter parameters of a request into a job filter."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, assert_never, cast

from qbull.api.auth import Caller
from qbull.api.context import ApiContext
from qbull.api.problems import ApiProblem, InvalidField
from qbull.core.argument_path import check_path
from qbull.core.job_filter import JOB_FILTERS, JobFilterArguments
from qbull.core.job_query import JobQuery, parse_query
from qbull.core.moment import COMING_MOMENT_EXAMPLES, MOMENT_EXAMPLES, parse_moment
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
                check_path(name, path)
                filters[name] = {path: expected}
            case "query":
                filters[name] = query_of(context, caller, value)
            case _:
                assert_never(field.kind)
    if filters and context.redaction.has_hidden_fields:
        filters["hidden"] = context.redaction.fields
    return cast(JobFilterArguments, filters)


def query_of(context: ApiContext, caller: Caller, text: str) -> JobQuery:
    """The query of a request. It is refused if it asks for values that the caller may not see."""
    query = parse_query(text, datetime.now(UTC), UTC)
    if query.asks_for_errors:
        context.redaction.refuse_hidden_filter(caller, "error_contains")
    for path in query.argument_paths:
        context.redaction.refuse_hidden_filter(caller, "payload", path)
    return query if context.redaction.sees_payloads(caller) else replace(query, words_in_arguments=False)


def past_moment(field: str, text: str) -> datetime:
    """Parse a time as people write it, or refuse the field; `2h` is two hours ago."""
    return _moment(field, text, is_coming=False)


def coming_moment(field: str, text: str) -> datetime:
    """Parse a time as people write it, or refuse the field; `2h` is in two hours."""
    return _moment(field, text, is_coming=True)


def _moment(field: str, text: str, *, is_coming: bool) -> datetime:
    try:
        return parse_moment(text, datetime.now(UTC), UTC, is_coming=is_coming)
    except (ValueError, OverflowError):
        why = f"is no time; write it like {COMING_MOMENT_EXAMPLES if is_coming else MOMENT_EXAMPLES}"
        raise ApiProblem(400, f"{field}: {why}", errors=[InvalidField(field, why)]) from None
