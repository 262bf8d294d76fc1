"""The query language: `queue:email state:failed args.customer_id:c-606 error:"421" since:1h`.

The REST API, the command line and the dashboard select jobs with it. A query is a list of terms, and a job
matches if all of them hold:

    field:value         the field has the value; several values, separated by commas, are alternatives
    -field:value        it has none of them
    word, "two words"   the job's id, its key or one of its arguments contains the text; of an id that qbull
                        generated, six characters or more
    *                   any text, outside quotes: task:send_*

`QUERY_FIELDS` lists the fields. Quotes make spaces, commas, colons and stars literal; a backslash does so
within quotes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec

from qbull.core.argument_path import NO_VALUE, check_path, scalar_text, value_at
from qbull.core.codec import decode_untyped
from qbull.core.failures import fingerprint
from qbull.core.ids import partition_in
from qbull.core.moment import parse_moment
from qbull.core.query_text import QueryTerm, QueryValue, read_terms
from qbull.core.record import STATES, ExtendedBody, State
from qbull.core.redaction import redact_error, redact_value
from qbull.errors import ArgumentsError

ARGUMENT_PREFIX = "args."
MIN_GENERATED_ID_CHARS = 6
"""A shorter word is not searched in generated ids: every id of the same hours may contain "ada" or "bad"."""


class QueryField(NamedTuple):
    """A field of the query language.

    Attributes:
        kind: How its values are compared: as a whole ("name"), as a part of a text ("text"), or as a time.
        help: Which jobs it selects.
    """

    kind: Literal["name", "text", "time"]
    help: str


QUERY_FIELDS: dict[str, QueryField] = {
    "queue": QueryField("name", "Jobs of this queue."),
    "state": QueryField("name", "Jobs in this state: " + ", ".join(STATES) + "."),
    "task": QueryField("name", "Jobs of this task."),
    "key": QueryField("name", "Jobs with this key."),
    "id": QueryField("name", "The job with this id."),
    "args.NAME": QueryField("name", "Jobs with this argument, such as args.items.0.sku:x."),
    "error": QueryField("text", "Jobs with this text in their error; upper and lower case are the same."),
    "fingerprint": QueryField("name", "Jobs that failed with this kind of error."),
    "worker": QueryField("name", "Jobs that this worker runs, or ran last."),
    "schedule": QueryField("name", "Jobs that this schedule created."),
    "flow": QueryField("name", "Jobs of this flow."),
    "since": QueryField("time", "Jobs that finished at this time or later, such as 1h or yesterday."),
    "until": QueryField("time", "Jobs that finished at this time or earlier, such as 2030-01-31."),
}
"""All fields. `since` and `until` compare the time of enqueueing if a job has not finished."""


class QueriedJob(msgspec.Struct, frozen=True):
    """A job as a query sees it.

    Args:
        id: its id.
        queue: its queue.
        state: its state.
        body: its record.
        error: the error of its last run.
        worker: the worker that runs it, or ran it last.
        hidden: names of arguments, in lower case, whose values must not be found.
    """

    id: str
    queue: str
    state: State
    body: ExtendedBody
    error: str = ""
    worker: str = ""
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class JobQuery:
    """A parsed query; `str` gives it in its normal form.

    Args:
        terms: the terms of the query, in order.
        since: the start of the period, if it has one.
        until: its end.
        words_in_arguments: whether words are searched in arguments too.
    """

    terms: tuple[QueryTerm, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    words_in_arguments: bool = True

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    @cached_property
    def states(self) -> tuple[State, ...]:
        """The states that may have matching jobs."""
        return tuple(state for state in STATES if self._allows("state", state))

    def allows_queue(self, name: str) -> bool:
        """Whether this queue may have matching jobs."""
        return self._allows("queue", name)

    def _allows(self, field: str, value: str) -> bool:
        terms = [term for term in self.terms if term.field == field]
        return all(any(one.equals(value) for one in term.values) != term.negated for term in terms)

    @cached_property
    def _names_queues(self) -> bool:
        return any(term.field == "queue" for term in self.terms)

    @cached_property
    def content(self) -> tuple[QueryTerm, ...]:
        """The terms that need the job itself, not only its queue, its state and its time."""
        return tuple(term for term in self.terms if term.field not in ("queue", "state", "since", "until"))

    @property
    def argument_paths(self) -> list[str]:
        """The arguments that it asks for, such as `items.0.sku`."""
        return [
            term.field.removeprefix(ARGUMENT_PREFIX)
            for term in self.terms
            if term.field.startswith(ARGUMENT_PREFIX)
        ]

    @property
    def asks_for_errors(self) -> bool:
        return any(term.field in ("error", "fingerprint") for term in self.terms)

    @property
    def ids(self) -> list[str]:
        """The only ids that can match, if the query names them."""
        for term in self.terms:
            if term.field == "id" and not term.negated and not any(value.has_star for value in term.values):
                return [value.parts[0] for value in term.values]
        return []

    @property
    def words(self) -> list[str]:
        """Words that may be whole ids."""
        return [
            term.values[0].parts[0]
            for term in self.terms
            if not term.field and not term.negated and not term.values[0].has_star
        ]

    def accepts(self, job: QueriedJob) -> bool:
        """Whether a job matches, apart from its time."""
        if job.state not in self.states or (self._names_queues and not self.allows_queue(job.queue)):
            return False
        if not self.content:
            return True
        seen = _SeenJob(job)
        return all(self._holds(term, seen) != term.negated for term in self.content)

    def _holds(self, term: QueryTerm, seen: _SeenJob) -> bool:
        job = seen.job
        match term.field:
            case "":
                return self._word_found(term.values[0], seen)
            case "error":
                return bool(seen.error) and any(value.is_in(seen.error) for value in term.values)
            case "fingerprint":
                return bool(seen.error) and _one_equals(term, fingerprint(seen.error))
            case "task":
                return _one_equals(term, job.body.task)
            case "key":
                return seen.key is not None and _one_equals(term, seen.key)
            case "id":
                return _one_equals(term, job.id)
            case "worker":
                return bool(job.worker) and _one_equals(term, job.worker)
            case "schedule":
                return bool(job.body.schedule) and _one_equals(term, job.body.schedule or "")
            case "flow":
                return bool(job.body.flow) and _one_equals(term, job.body.flow)
        if not seen.may_have(*term.values):
            return False
        return _argument_fits(term, value_at(seen.arguments, term.field.removeprefix(ARGUMENT_PREFIX)))

    def _word_found(self, word: QueryValue, seen: _SeenJob) -> bool:
        if _in_id(word, seen.job.id) or (seen.key is not None and word.is_in(seen.key)):
            return True
        if not self.words_in_arguments or not seen.may_have(word):
            return False
        return any(word.is_in(text) for text in texts_in(seen.arguments))


class _SeenJob:
    """The parts of a job that take time to read, without its hidden values."""

    def __init__(self, job: QueriedJob) -> None:
        self.job = job

    @cached_property
    def _redacted(self) -> tuple[Any, set[str]]:
        secrets: set[str] = set()
        arguments = decode_untyped(self.job.body.payload)
        return (redact_value(arguments, self.job.hidden, secrets) if self.job.hidden else arguments), secrets

    @property
    def arguments(self) -> Any:
        return self._redacted[0]

    def may_have(self, *values: QueryValue) -> bool:
        """Whether one of these may be in the arguments. Most jobs need not be decoded for it."""
        job = self.job
        return bool(job.hidden) or any(value.may_be_in_json(job.body.payload) for value in values)

    @cached_property
    def key(self) -> str | None:
        return None if self.job.body.key is None else self._shown(self.job.body.key)

    @cached_property
    def error(self) -> str:
        return self._shown(self.job.error)

    def _shown(self, text: str) -> str:
        return redact_error(text, self._redacted[1]) if self.job.hidden else text


def parse_query(text: str, now: datetime, zone: tzinfo | None) -> JobQuery:
    """Parse a query. Raises ArgumentsError if it is none.

    Args:
        text: the query as it was typed.
        now: the current time, with its zone.
        zone: the zone of dates and days; None for that of this machine.
    """
    terms = read_terms(text)
    since = until = None
    for term in terms:
        match term.field:
            case "":
                continue
            case "since":
                at = _moment(term, now, zone)
                since = at if since is None else max(since, at)
            case "until":
                at = _moment(term, now, zone)
                until = at if until is None else min(until, at)
            case "state":
                _check_states(term)
            case _:
                _check_field(term)
    return JobQuery(tuple(terms), since, until)


def texts_in(value: Any) -> Iterator[str]:
    """The values in arguments, as texts."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)
    else:
        yield scalar_text(value)


def _one_equals(term: QueryTerm, text: str) -> bool:
    return any(value.equals(text) for value in term.values)


def _in_id(word: QueryValue, id: str) -> bool:
    is_long_enough = partition_in(id) is None or sum(map(len, word.parts)) >= MIN_GENERATED_ID_CHARS
    return is_long_enough and word.is_in(id)


def _argument_fits(term: QueryTerm, there: Any) -> bool:
    if there is NO_VALUE:
        return False
    if isinstance(there, dict | list):
        return any(value.is_anything for value in term.values)
    return _one_equals(term, scalar_text(there))


def _moment(term: QueryTerm, now: datetime, zone: tzinfo | None) -> datetime:
    if term.negated or len(term.values) != 1 or term.values[0].has_star:
        raise ArgumentsError(f"query: {term}: give one time, such as {term.field}:1h")
    try:
        return parse_moment(term.values[0].parts[0], now, zone)
    except (ValueError, OverflowError) as error:
        raise ArgumentsError(f"query: {term.field}: {error}") from None


def _check_states(term: QueryTerm) -> None:
    for value in term.values:
        if not any(value.equals(state) for state in STATES):
            raise ArgumentsError(f"query: {value} is no state; use one of {', '.join(STATES)}")


def _check_field(term: QueryTerm) -> None:
    if term.field.startswith(ARGUMENT_PREFIX) and len(term.field) > len(ARGUMENT_PREFIX):
        check_path("query", term.field.removeprefix(ARGUMENT_PREFIX))
    elif term.field not in QUERY_FIELDS or term.field == "args.NAME":
        raise ArgumentsError(
            f'query: "{term.field[:40]}" is no field; use one of {", ".join(QUERY_FIELDS)}, '
            f'or write "{term.field[:40]}:…" in quotes to search for the text'
        )


def without_values(query: str) -> str:
    """A query for a log: without its words, and with the names of arguments only."""
    return " ".join(
        f"{'-' * term.negated}{term.field}{':' * bool(term.field)}…"
        if not term.field or term.field.startswith(ARGUMENT_PREFIX)
        else str(term)
        for term in read_terms(query)
    )
