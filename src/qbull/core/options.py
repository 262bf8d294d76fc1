"""Options of a call: everything that `enqueue` takes besides the arguments of the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, TypedDict

import msgspec
from msgspec.structs import fields, replace

from qbull.core.durability import DURABILITIES, Durability
from qbull.core.ids import check_id, check_key
from qbull.core.record import ABSOLUTE_TIME_FROM_MS, DEFAULT_PRIORITY
from qbull.core.unique import Unique, UniqueWindow
from qbull.errors import MAX_COUNT, MAX_DELAY_SECONDS, ArgumentsError, ConfigError, QbullError

OptionKind = Literal[
    "seconds",
    "duration",
    "moment",
    "end",
    "priority",
    "key",
    "id",
    "unique",
    "durability",
    "transaction",
    "weight",
]


def check_expires(expires: float | datetime, refusal: type[QbullError], of: str = "") -> None:
    if isinstance(expires, datetime):
        if expires.utcoffset() is None:
            raise refusal(
                f"{of}expires={expires.isoformat()}: has no time zone; "
                "use an aware datetime, for example datetime.now(UTC)"
            )
    elif not isinstance(expires, int | float) or isinstance(expires, bool):
        raise refusal(f"{of}expires={expires!r}: give seconds or a moment")
    elif not 0 < expires <= MAX_DELAY_SECONDS:
        raise refusal(f"{of}expires={expires}: must be more than 0 seconds")


def check_job_weight(weight: object) -> None:
    if not isinstance(weight, int) or isinstance(weight, bool) or not 0 <= weight <= MAX_COUNT:
        raise ArgumentsError(f"weight={weight!r}: give a whole number from 0 to {MAX_COUNT:,}")


class EncodedArguments(msgspec.Struct, frozen=True, gc=False):
    """The encoded arguments of one call, and the values that follow from them.

    Args:
        payload: the arguments as JSON.
        key: the key of the job, if it has one.
        id: the id that the caller chose.
        unique: the window in which only one such call counts.
        row: the row of the outbox that it comes from, if its id may name several jobs.
    """

    payload: bytes
    key: str | None
    id: str | None
    unique: UniqueWindow | None = None
    row: int = 0


class Options(msgspec.Struct, frozen=True, dict=True):
    """The options of one call. `JOB_OPTIONS` describes those that users give."""

    delay: float | None = None
    at: datetime | None = None
    priority: int = DEFAULT_PRIORITY
    key: str | None = None
    id: str | None = None
    timeout: float | None = None
    transaction: Any = None
    durability: Durability | Literal["outbox"] | None = None
    unique: Unique | None = None
    expires: float | datetime | None = None
    weight: int | None = None
    trace: str | None = None
    """The trace context that the spans of its runs are linked to (observe/trace.py)."""
    headers: dict[str, str] | None = None
    """Values that middleware sends along."""

    def __post_init__(self) -> None:
        if not isinstance(self.priority, int) or not 1 <= self.priority <= 10:
            raise ArgumentsError(
                f"priority={self.priority!r}: give a whole number from 1 (first) to 10 (last)"
            )
        if self.delay is not None and self.at is not None:
            raise ArgumentsError("delay and at: give one of them")
        for name, value in (("delay", self.delay), ("timeout", self.timeout)):
            if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
                raise ArgumentsError(f"{name}={value!r}: give a number of seconds")
        if self.delay is not None and not 0 <= self.delay <= MAX_DELAY_SECONDS:
            fact = "must not be negative" if self.delay < 0 else f"give seconds from 0 to {MAX_DELAY_SECONDS}"
            raise ArgumentsError(f"delay={self.delay}: {fact}")
        if self.at is not None and self.at.utcoffset() is None:
            raise ArgumentsError(
                f"at={self.at.isoformat()}: has no time zone; "
                "use an aware datetime, for example datetime.now(UTC)"
            )
        if self.timeout is not None and not 0 < self.timeout <= MAX_DELAY_SECONDS:
            raise ArgumentsError(f"timeout={self.timeout}: must be more than 0 seconds")
        if self.durability is not None and self.durability not in (*DURABILITIES, "outbox"):
            words = ", ".join((*DURABILITIES, "outbox"))
            raise ArgumentsError(f"durability={self.durability!r}: use one of {words}")
        if self.expires is not None:
            check_expires(self.expires, ArgumentsError)
            self._refuse_early_end()
        if self.weight is not None:
            check_job_weight(self.weight)
        self.check_unique(self.unique)
        if self.key is not None:
            check_key(self.key)
        if self.id is not None:
            check_id(self.id)

    def check_unique(self, unique: Unique | None) -> None:
        """Refuse a `unique` that contradicts the other options."""
        if unique is None:
            return
        if self.id is not None:
            raise ArgumentsError("id and unique: give one of them")
        if unique.mode == "debounce" and (self.delay is not None or self.at is not None):
            raise ArgumentsError("delay, at and unique: a debounced job has its time from window")
        if self.in_outbox:
            which = 'durability="outbox"' if self.transaction is None else "transaction"
            raise ArgumentsError(f"{which} and unique: jobs that are written to an outbox cannot be unique")

    @cached_property
    def when(self) -> int | str:
        """When the job may run and, if it expires, by when it must start, as lua/lib/new_job.lua reads it."""
        due: int | str = int((self.delay or 0) * 1000)
        if self.at is not None:
            due = f"@{int(self.at.timestamp() * 1000)}"
        if self.end_ms is None:
            return due
        return f"{due} {'@' if self.end_ms >= ABSOLUTE_TIME_FROM_MS else ''}{self.end_ms}"

    @cached_property
    def end_ms(self) -> int | None:
        """The time by which the job must start, as its record stores it."""
        if isinstance(self.expires, datetime):
            return max(int(self.expires.timestamp() * 1000), ABSOLUTE_TIME_FROM_MS)
        return None if self.expires is None else max(int(self.expires * 1000), 1)

    @cached_property
    def profile(self) -> Durability | None:
        """The durability that the server must provide."""
        return None if self.durability == "outbox" else self.durability

    @cached_property
    def in_outbox(self) -> bool:
        """Whether the job is written to PostgreSQL first."""
        return self.transaction is not None or self.durability == "outbox"

    def with_defaults(self, defaults: Options) -> Options:
        """The same, with the values of `defaults` for the options that are not given."""
        missing = {
            field.name: value
            for field in fields(self)
            if getattr(self, field.name) is None and (value := getattr(defaults, field.name)) is not None
        }
        return replace(self, **missing) if missing else self

    def after(self, seconds: float) -> Options:
        """The same options, given this many seconds later."""
        delay = None if self.delay is None else max(self.delay - seconds, 0)
        expires = self.expires
        if isinstance(expires, int | float):
            expires = max(expires - seconds, (delay or 0) + 0.001)
        return (
            self
            if (delay, expires) == (self.delay, self.expires)
            else replace(self, delay=delay, expires=expires)
        )

    def _refuse_early_end(self) -> None:
        due = self.delay if self.delay is not None else self.at
        if (
            due is None
            or self.expires is None
            or isinstance(due, datetime) != isinstance(self.expires, datetime)
        ):
            return
        if self.expires <= due:  # type: ignore[operator]
            raise ArgumentsError(f"expires={self.expires}: it would expire before it is due")

    def wire(self) -> str:
        """The options as a row of the outbox stores them, without those that have their own column."""
        apart = ("key", "id", "transaction")
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        return msgspec.json.encode(
            {name: value for name, value in said.items() if value is not None}
        ).decode()


class JobOptions(TypedDict, total=False):
    """The options of a call as keyword arguments, such as those of `app.send`."""

    delay: float | None
    at: datetime | None
    priority: int
    key: str | None
    id: str | None
    timeout: float | None
    expires: float | datetime | None
    unique: Unique | None
    transaction: Any
    durability: Durability | Literal["outbox"] | None
    weight: int | None


class SendOptions(JobOptions, total=False):
    """The keyword arguments of `app.send`."""

    returns: Any
    """The type of the result; plain JSON without it."""


DEFAULT_OPTIONS = Options()
"""The defaults, shared by calls without options."""


class JobOption(msgspec.Struct, frozen=True):
    """One option of a call, for Python, the REST API, the command line and the documentation.

    Args:
        name: the name of the parameter, the field and the flag.
        kind: the kind of value. The REST API and the command line have a type for each kind.
        help: one sentence for the reference and for `--help`.
        metavar: the placeholder in `--help`.
    """

    name: str
    kind: OptionKind
    help: str
    metavar: str | None = None

    @property
    def in_json(self) -> bool:
        """Whether the REST API and the command line have it; a transaction exists only in Python."""
        return self.kind != "transaction"


JOB_OPTIONS = (
    JobOption("delay", "seconds", "Seconds until the job may run."),
    JobOption("at", "moment", "Time from which the job may run, such as 2030-01-31T12:00:00Z.", "TIME"),
    JobOption("priority", "priority", "1 runs first, 10 runs last; 5 by default."),
    JobOption("key", "key", "Key that the job is ordered and limited by, instead of the task's own."),
    JobOption(
        "id", "id", "Id of the job; while a job with this id is in the queue, a second one adds nothing."
    ),
    JobOption("timeout", "duration", "Seconds that one attempt may take.", "SECONDS"),
    JobOption(
        "expires", "end", "Seconds or time until which the job must start; if not, it is cancelled.", "END"
    ),
    JobOption(
        "unique",
        "unique",
        'Of calls for the same thing, only one counts: a window in seconds, or {"window", "by", "mode"}.',
        "WINDOW",
    ),
    JobOption(
        "transaction",
        "transaction",
        "PostgreSQL connection; the job is enqueued when its transaction commits.",
    ),
    JobOption("durability", "durability", "How safe the job must be before the call returns."),
    JobOption(
        "weight", "weight", "How much of its shared limits the job takes, instead of the task's weight."
    ),
)
"""All options of a call, in the order of the reference.

Add a new option here, to `Options` and to `Task.options`."""


def options_from(values: Mapping[str, Any], moment: Callable[[str, str], datetime]) -> Options:
    """Options from JSON: times are texts, which `moment` reads, and `unique` is a window or an object."""
    given: dict[str, Any] = {}
    for option in JOB_OPTIONS:
        value = values.get(option.name)
        if value is None or not option.in_json:
            continue
        if option.kind in ("moment", "end") and isinstance(value, str):
            value = moment(option.name, value)
        elif option.kind == "unique":
            value = _unique_from(msgspec.to_builtins(value))
        given[option.name] = value
    return Options(**given) if given else DEFAULT_OPTIONS


def _unique_from(value: Any) -> Unique:
    try:
        return Unique(**value) if isinstance(value, dict) else Unique(window=value)
    except ConfigError as error:
        raise ArgumentsError(str(error)) from None
