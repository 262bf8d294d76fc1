"""Job filters: select jobs by task, key, error, arguments and time.

Search, redrive and clean take the same filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypedDict, assert_never

import msgspec

from qbull.core.argument_path import NO_VALUE, check_path, scalar_text, value_at
from qbull.core.codec import decode_untyped
from qbull.core.failures import fingerprint
from qbull.core.job_query import JobQuery, QueriedJob
from qbull.core.record import ExtendedBody, State
from qbull.core.redaction import redact_error, secrets_in
from qbull.errors import ArgumentsError


class FilterField(NamedTuple):
    """One way to choose jobs.

    Attributes:
        kind: "text", "time" (a datetime with its zone), "payload" (arguments by name) or "query".
        placeholder: Stands for the value in help texts.
        help: Which jobs it selects.
    """

    kind: Literal["text", "time", "payload", "query"]
    placeholder: str
    help: str


JOB_FILTERS: dict[str, FilterField] = {
    "task": FilterField("text", "NAME", "Only jobs of this task."),
    "key": FilterField("text", "KEY", "Only jobs with this key."),
    "error_contains": FilterField("text", "TEXT", "Only jobs with this text in their error."),
    "fingerprint": FilterField("text", "FINGERPRINT", 'Only jobs of this group of "qbull failures".'),
    "payload": FilterField("payload", "NAME=VALUE", "Only jobs with this argument, such as items.0.sku=x."),
    "after": FilterField(
        "time", "TIME", "Only jobs that finished at this time or later, such as yesterday or 2h."
    ),
    "before": FilterField(
        "time", "TIME", "Only jobs that finished at this time or earlier, such as 2030-01-31."
    ),
    "query": FilterField(
        "query", "QUERY", "Only jobs that match a query, such as 'args.user:u1 -task:ping'."
    ),
}
"""All filters. REST queries and bodies, the flags of the command line and the dashboard follow it."""


class JobOrigin(NamedTuple):
    """The facts about a job that its record does not have."""

    id: str
    queue: str
    state: State
    worker: str


UNKNOWN_ORIGIN = JobOrigin("", "", "waiting", "")


class JobFilterArguments(TypedDict, total=False):
    """The filters as keyword arguments.

    Args:
        task: only jobs of this task.
        key: only jobs with this key.
        error_contains: only jobs with this text in their error.
        fingerprint: only jobs of this group of failures.
        payload: only jobs with these arguments, for example {"user_id": "u1", "items.0.sku": "x"}.
        after: only jobs that finished at this time or later; if unfinished, that were enqueued then.
        before: only jobs that finished at this time or earlier; if unfinished, that were enqueued then.
        query: only jobs that match this query, for example 'args.user_id:u1 -task:ping'.
    """

    task: str | None
    key: str | None
    error_contains: str | None
    fingerprint: str | None
    payload: Mapping[str, Any] | None
    after: datetime | None
    before: datetime | None
    query: str | JobQuery | None


class JobFilter(msgspec.Struct, frozen=True, dict=True):
    task: str | None = None
    key: str | None = None
    error_contains: str | None = None
    fingerprint: str | None = None
    payload: Mapping[str, Any] | None = None
    after: datetime | None = None
    before: datetime | None = None
    query: JobQuery | None = None
    hidden: frozenset[str] = frozenset()
    """Names of arguments, in lower case, whose values must not be found in errors and keys."""

    def __post_init__(self) -> None:
        for name, field in JOB_FILTERS.items():
            value = getattr(self, name)
            if value is not None:
                _check(name, field, value)

    def accepts(self, body: ExtendedBody, error: str | None, origin: JobOrigin = UNKNOWN_ORIGIN) -> bool:
        """Whether a job matches, apart from its time. The case of an error does not matter."""
        if self.task is not None and body.task != self.task:
            return False
        if self.key is not None and (body.key is None or self.shown(body, body.key) != self.key):
            return False
        if error is not None and (self.error_contains is not None or self.fingerprint is not None):
            error = self.shown(body, error)
        if self.error_contains is not None and self.error_contains.lower() not in (error or "").lower():
            return False
        if self.fingerprint is not None and (error is None or fingerprint(error) != self.fingerprint):
            return False
        if self.query is not None and not self.query.accepts(
            QueriedJob(origin.id, origin.queue, origin.state, body, error or "", origin.worker, self.hidden)
        ):
            return False
        return self.payload is None or self._fits(decode_untyped(body.payload))

    def shown(self, body: ExtendedBody, text: str) -> str:
        """A text of a job without the values of its hidden arguments."""
        if not self.hidden:
            return text
        return redact_error(text, secrets_in(decode_untyped(body.payload), self.hidden))

    def _fits(self, arguments: Any) -> bool:
        assert self.payload is not None
        return all(_same(value_at(arguments, path), value) for path, value in self.payload.items())

    def within(self, ms: int) -> bool:
        """Whether this time is selected."""
        after, before = self.after_ms, self.before_ms
        return (after is None or ms >= after) and (before is None or ms <= before)

    @property
    def everything(self) -> bool:
        """Whether the filter selects by time alone."""
        return all(getattr(self, name) is None for name, field in JOB_FILTERS.items() if field.kind != "time")

    @cached_property
    def after_ms(self) -> int | None:
        since = None if self.query is None else self.query.since
        bounds = [int(at.timestamp() * 1000) for at in (self.after, since) if at is not None]
        return max(bounds, default=None)

    @cached_property
    def before_ms(self) -> int | None:
        until = None if self.query is None else self.query.until
        bounds = [int(at.timestamp() * 1000) for at in (self.before, until) if at is not None]
        return min(bounds, default=None)


def _check(name: str, field: FilterField, value: Any) -> None:
    match field.kind:
        case "text":
            if not isinstance(value, str) or not value:
                raise ArgumentsError(f"{name}={value!r}: give a text that is not empty")
        case "time":
            if value.utcoffset() is None:
                raise ArgumentsError(
                    f"{name}={value.isoformat()}: has no time zone; use an aware datetime, "
                    "for example datetime.now(UTC)"
                )
        case "payload":
            for path in value:
                check_path(name, path)
        case "query":
            if not isinstance(value, JobQuery):
                raise ArgumentsError(f"{name}={value!r}: give a text that is a query")
        case _:
            assert_never(field.kind)


def _same(there: Any, wanted: Any) -> bool:
    """Compare with a typed text: 5 equals "5", and true equals "true"."""
    if there is NO_VALUE:
        return False
    if there == wanted and type(there) is type(wanted):
        return True
    return isinstance(wanted, str) and not isinstance(there, dict | list) and scalar_text(there) == wanted
