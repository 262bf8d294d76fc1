"""The history of a durable job: its recorded steps, and how a run recognises them.

A record is one step that has ended. Records are numbered in the order in which the steps ended. A step is
recognised by its name, its arguments, and how many steps with both the run has asked for before it.

A run replays the history: recorded steps return their results in the order of their numbers, so that a race
between parallel steps ends as it did before. A step that is not recorded runs when nothing is left to replay.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import msgspec

from qbull.core.calls import CallOutcomes, read_outcomes
from qbull.core.outcome import describe
from qbull.core.published import PublishedSizes, read_published
from qbull.core.streams import EMITTED_FIELD, EmittedValues
from qbull.errors import StepFailed

MAX_STEPS = 1_000
"""Records in one history."""
MAX_HISTORY_BYTES = 1 << 20
STEP_FIELD = b"step:"
"""The start of a record's name in the data of its job (store/names.py)."""
CHECKPOINT_PREFIX = "checkpoint "
SLEEP_NAME = "sleep"
PATCH_PREFIX = "patched "
ANY_ARGUMENTS = b"*"
"""Instead of a digest: the record of a fork, which counts for the step whatever its arguments are."""
_ASKS = ("", b"")
"""Counts all asks of a run, among the counts of each step."""

StepEnd = Literal["r", "e", "a", "c", "b", "w", "l"]
"""How a step ended: with a result, with an error that the task has caught, with an error after which it runs
again in the next attempt; or it is a checkpoint; or the start of a sleep or of a wait for a signal, which has
the due time; or the start of a call, which has the called job."""
STARTS: tuple[StepEnd, ...] = ("b", "w", "l")


class StepKey(NamedTuple):
    """A step as the code asks for it."""

    name: str
    arguments: bytes
    """A digest of the arguments."""
    occurrence: int
    """How many steps with this name and these arguments were asked for before, in the same run."""


class StepRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A step that has ended. Add fields at the end, with defaults: other versions read these records."""

    number: int
    name: str
    arguments: bytes
    occurrence: int
    end: StepEnd
    content: bytes
    """The result as JSON, or a StepError as JSON; encoded by the codecs of the app."""
    started_ms: int = 0
    duration_ms: float = 0.0
    attempts: int = 1
    asked: int = 0
    """The number of its ask in the run, for forks with other arguments (core/fork.py)."""
    schema: bytes = b""
    """The JSON Schema of the signal that a wait starts to wait for; empty if any value fits."""

    @property
    def key(self) -> StepKey:
        return StepKey(self.name, self.arguments, self.occurrence)


class StepError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The exception of a failed step. Without `arguments` it comes back as a StepFailed."""

    type: str
    """The module and the qualified name of its class."""
    text: str
    arguments: list[Any] | None = None
    attributes: dict[str, Any] = {}


class History:
    """The records of one job during one run.

    Args:
        records: the records that the server has.
        sizes: the size of each in bytes, by its number.
        emitted: the values that the job has emitted.
        outcomes: the outcomes of calls that are not recorded yet.
        published: the sizes of the values that the job has published.
    """

    def __init__(
        self,
        records: Iterable[StepRecord] = (),
        sizes: Mapping[int, int] | None = None,
        emitted: EmittedValues | None = None,
        outcomes: CallOutcomes | None = None,
        published: Mapping[str, int] | None = None,
    ) -> None:
        self.published = PublishedSizes(published or {})
        self.emitted = emitted or EmittedValues()
        self.outcomes = outcomes or CallOutcomes(0, {})
        self.records = {record.number: record for record in sorted(records, key=lambda one: one.number)}
        self.last = max(self.records, default=0)
        """The number of the newest record."""
        self.unplayed = deque(record for record in self.records.values() if record.end not in ("a", *STARTS))
        """The records that this run has not returned yet, in order."""
        self._sizes = dict(sizes or {})
        self.size = sum(self._sizes.values())
        """The size of all records in bytes."""
        self._recorded = {record.key: record for record in self.unplayed}
        self._started: dict[StepKey, StepRecord] = {}
        for record in self.records.values():
            if record.end in STARTS:
                self._started[record.key] = record
            elif record.end == "a":  # it starts over
                self._started.pop(record.key, None)
        self._has_any = any(record.arguments == ANY_ARGUMENTS for record in self.unplayed)
        self._asked: dict[tuple[str, bytes], int] = {}
        self._ask_numbers: dict[StepKey, int] = {}
        self._checkpoints: dict[str, tuple[int, dict[tuple[str, bytes], int]]] = {}

    def ask(self, name: str, arguments: bytes) -> tuple[StepKey, StepRecord | None]:
        """The next step with this name and these arguments, and its record if it has one."""
        self._asked[_ASKS] = asks = self._asked.get(_ASKS, 0) + 1
        if self._has_any and arguments:
            any_key = StepKey(name, ANY_ARGUMENTS, self._asked.get((name, ANY_ARGUMENTS), 0))
            if any_key in self._recorded:
                self._asked[name, ANY_ARGUMENTS] = any_key.occurrence + 1
                return any_key, self._recorded[any_key]
        occurrence = self._asked.get((name, arguments), 0)
        self._asked[name, arguments] = occurrence + 1
        key = StepKey(name, arguments, occurrence)
        self._ask_numbers[key] = asks
        return key, self._recorded.get(key)

    def ask_number(self, key: StepKey) -> int:
        """The number of the ask for a step in this run."""
        return self._ask_numbers.get(key, 0)

    def is_before_patch(self, name: str) -> bool:
        """Whether an earlier run has passed this point, before the change with this name. Counts the ask."""
        key = StepKey(name, b"", self._asked.get((name, b""), 0))
        if key in self._recorded or not (self.unplayed or self._has_unasked_starts()):
            return False
        self._asked[name, b""] = key.occurrence + 1
        return True

    def _has_unasked_starts(self) -> bool:
        """Whether an earlier run started a sleep, a wait or a call that this run has not asked for yet."""
        return any(self._asked.get(key[:2], 0) <= key.occurrence for key in self._started)

    def started(self, key: StepKey) -> StepRecord | None:
        """The start of a sleep, a wait or a call that has not ended."""
        return self._started.get(key)

    def played(self, record: StepRecord) -> None:
        """The run has the result of this record."""
        if self.unplayed and self.unplayed[0] is record:
            self.unplayed.popleft()
        elif record in self.unplayed:
            self.unplayed.remove(record)

    def unplayed_next(self, record: StepRecord) -> None:
        """The run has written this record and is to get its result, after those with lower numbers."""
        at = len(self.unplayed)
        while at and self.unplayed[at - 1].number > record.number:
            at -= 1
        self.unplayed.insert(at, record)

    def put(self, record: StepRecord, size: int) -> None:
        """A record was written, or written anew."""
        number = record.number
        self.records[number] = record
        self.size += size - self._sizes.get(number, 0)
        self._sizes[number] = size

    def open_checkpoint(self, name: str, number: int) -> None:
        """The first call of a checkpoint in this run has returned: its record has this number."""
        self._checkpoints[name] = number, dict(self._asked)

    def checkpoint(self, name: str) -> int | None:
        """The number of a checkpoint that this run has called before; None if it has not."""
        known = self._checkpoints.get(name)
        return known[0] if known is not None else None

    @property
    def position(self) -> str:
        """The checkpoints that the run has passed: number and value of each."""
        numbers = sorted(number for number, _ in self._checkpoints.values())
        return "/".join(f"{number}.{self.records[number].attempts}" for number in numbers)

    def rewind(self, name: str) -> None:
        """A checkpoint has a new value. The steps after its first call are forgotten, and counted anew."""
        number, asked = self._checkpoints[name]
        for later in range(number + 1, self.last + 1):
            self.records.pop(later, None)
            self.size -= self._sizes.pop(later, 0)
        for by_key in (self._recorded, self._started):
            for key in [key for key, record in by_key.items() if record.number > number]:
                del by_key[key]
        self._checkpoints = {other: known for other, known in self._checkpoints.items() if known[0] <= number}
        self._asked = dict(asked)
        self._ask_numbers = {}
        self.last = number


def digest_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """The same bytes for the same arguments. An object without a JSON form counts by its type."""
    if not args and not kwargs:
        return b""
    try:
        text = _encode_arguments((args, kwargs))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        text = _encode_arguments(([_named(one) for one in args], {k: _named(v) for k, v in kwargs.items()}))
    return blake2b(text, digest_size=8).digest()


def _named(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else _named(value)


_encode_arguments = msgspec.json.Encoder(enc_hook=_plain, order="deterministic").encode
encode_record = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(StepRecord).decode
_encode_error = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(StepError).decode


def read_history(fields: Mapping[bytes, bytes]) -> History:
    """The history in the data of a job. Raises ValueError if a record cannot be read."""
    records, sizes, emitted = [], {}, {}
    for name, stored in fields.items():
        if name.startswith(STEP_FIELD):
            record = decode_record(stored)
            records.append(record)
            sizes[record.number] = len(stored)
        elif name.startswith(EMITTED_FIELD):
            emitted[name.removeprefix(EMITTED_FIELD).decode()] = int(stored)
    published = {name: len(content) for name, content in read_published(fields).items()}
    return History(records, sizes, EmittedValues(emitted), read_outcomes(fields), published)


def decode_record(stored: bytes) -> StepRecord:
    """The record in these bytes. Raises ValueError if they are none."""
    try:
        return _decode_record(stored)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"a step of its history cannot be read: {error}") from None


def encode_error(name: str, error: Exception) -> tuple[bytes, Exception]:
    """The recorded form of a step's exception, and the exception that the task gets now.

    The task gets the exception itself if the record is enough to make an equal one, else a StepFailed. So the
    code behaves the same in this run and in every replay.
    """
    recorded = StepError(_type_of(error), describe(error), *_state_of(error))
    encoded = _encode_error(recorded)
    if recorded.arguments is not None:
        return encoded, error
    failed = make_error(name, recorded)
    failed.__cause__ = error
    return encoded, failed


def decode_error(encoded: bytes) -> StepError:
    """The exception of a failed step. Raises ValueError if it cannot be read."""
    try:
        return _decode_error(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"the error of a step cannot be read: {error}") from None


def make_error(name: str, recorded: StepError) -> Exception:
    """An exception like the one that was recorded. A class that does not exist here becomes a StepFailed."""
    kind = _class_of(recorded.type)
    if recorded.arguments is not None and kind is not None:
        with suppress(Exception):  # the class may have changed since
            return _rebuilt(kind, recorded.arguments, recorded.attributes)
    short = recorded.type.rpartition(":")[2].rpartition(".")[2]
    return StepFailed(
        f'step "{name}" failed: {recorded.text}', step=name, error=recorded.text, error_type=short
    )


def _type_of(error: Exception) -> str:
    return f"{type(error).__module__}:{type(error).__qualname__}"


def _class_of(name: str) -> type[Exception] | None:
    """The class with this name, if its module is loaded. Nothing is imported: the name is only data."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _rebuilt(kind: type[Exception], arguments: list[Any], attributes: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *arguments)
    error.args = tuple(arguments)
    error.__dict__.update(attributes)
    return error


def _state_of(error: Exception) -> tuple[list[Any] | None, dict[str, Any]]:
    """The arguments and attributes of an exception, if an equal one can be made of them."""
    if _class_of(_type_of(error)) is not type(error):
        return None, {}
    arguments, attributes = list(error.args), dict(error.__dict__)
    try:
        copied = msgspec.json.decode(msgspec.json.encode([arguments, attributes]))
        rebuilt = _rebuilt(type(error), *copied)
        is_equal = copied == [arguments, attributes] and str(rebuilt) == str(error)
    except Exception:  # the methods of an exception may raise anything
        return None, {}
    return (arguments, attributes) if is_equal else (None, {})
