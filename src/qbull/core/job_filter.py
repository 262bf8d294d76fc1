"""Job filters: select jobs by task, key, error, arguments and time.

Search, redrive and clean take the same filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypedDict, assert_never

from qbull.core.codec import decode_untyped
from qbull.core.digits import MAX_DIGITS, whole_number
from qbull.core.failures import fingerprint
from qbull.core.record import Body
from qbull.core.redaction import redact_text, secrets_in
from qbull.errors import ArgumentsError


class FilterField(NamedTuple):
    """One way to choose jobs.

    Attributes:
        kind: "text", "time" (a datetime with its zone) or "payload" (arguments by name).
        placeholder: Stands for the value in help texts.
        help: Which jobs it selects.
    """

    kind: Literal["text", "time", "payload"]
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
}
"""All filters. REST queries and bodies, the flags of the command line and the dashboard follow it."""


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
    """

    task: str | None
    key: str | None
    error_contains: str | None
    fingerprint: str | None
    payload: Mapping[str, Any] | None
    after: datetime | None
    before: datetime | None


@dataclass(frozen=True, slots=True)
class JobFilter:
    task: str | None = None
    key: str | None = None
    error_contains: str | None = None
    fingerprint: str | None = None
    payload: Mapping[str, Any] | None = None
    after: datetime | None = None
    before: datetime | None = None
    hidden: frozenset[str] = frozenset()
    """Names of arguments, in lower case, whose values must not be found in errors and keys."""

    def __post_init__(self) -> None:
        for name, field in JOB_FILTERS.items():
            value = getattr(self, name)
            if value is not None:
                _check(name, field, value)

    def accepts(self, body: Body, error: str | None) -> bool:
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
        return self.payload is None or self._fits(decode_untyped(body.payload))

    def shown(self, body: Body, text: str) -> str:
        """A text of a job without the values of its hidden arguments."""
        if not self.hidden:
            return text
        return redact_text(text, secrets_in(decode_untyped(body.payload), self.hidden))

    def _fits(self, arguments: Any) -> bool:
        assert self.payload is not None
        return all(_same(_at(arguments, path), value) for path, value in self.payload.items())

    def within(self, ms: int) -> bool:
        """Whether this time is selected."""
        after, before = self.after_ms, self.before_ms
        return (after is None or ms >= after) and (before is None or ms <= before)

    @property
    def everything(self) -> bool:
        """Whether the filter selects by time alone."""
        return all(getattr(self, name) is None for name, field in JOB_FILTERS.items() if field.kind != "time")

    @property
    def after_ms(self) -> int | None:
        return None if self.after is None else int(self.after.timestamp() * 1000)

    @property
    def before_ms(self) -> int | None:
        return None if self.before is None else int(self.before.timestamp() * 1000)


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
                _check_path(name, path)
        case _:
            assert_never(field.kind)


def _check_path(name: str, path: str) -> None:
    """Refuse a path with digits that are no position in a list, such as `items.².sku`."""
    for part in path.split("."):
        if part.isdigit() and whole_number(part) is None:
            raise ArgumentsError(
                f'{name}: "{part[:40]}" is no position in a list; '
                f"write at most {MAX_DIGITS} digits from 0 to 9"
            )


_NO_VALUE = object()


def _at(value: Any, path: str) -> Any:
    """The value at a path such as `items.0.sku`."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and (index := whole_number(part)) is not None and index < len(value):
            value = value[index]
        else:
            return _NO_VALUE
    return value


def _same(there: Any, wanted: Any) -> bool:
    """Compare with a typed text: 5 equals "5", and true equals "true"."""
    if there is _NO_VALUE:
        return False
    if there == wanted and type(there) is type(wanted):
        return True
    return isinstance(wanted, str) and not isinstance(there, dict | list) and _text(there) == wanted


def _text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
    return str(value)
