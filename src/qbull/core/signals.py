"""Signals: values that are sent to a durable job from outside. They wait in its data for its task.

A signal has a number, in the order of sending. The task takes the oldest one with the name that it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from qbull.core.codec import decode_exactly, encode_result
from qbull.core.flow import NEVER_DUE_MS
from qbull.core.task import TaskSpec
from qbull.core.type_schema import type_schema
from qbull.core.values import DEFAULT_HOOKS, ValueHooks
from qbull.errors import (
    ArgumentsError,
    Conflict,
    PayloadError,
    SignalMismatch,
    SignalTimeout,
    TooLarge,
)

MAX_SIGNALS = 100
"""Signals of one job that its task has not taken."""
MAX_SIGNALS_BYTES = 256 << 10
"""The size of all of them."""
MAX_SIGNAL_BYTES = 64 << 10
"""The size of one value as JSON."""
MAX_SIGNAL_NAME_CHARS = 100
MAX_SIGNAL_SCHEMA_BYTES = 4096
"""A larger schema of a signal's type is not recorded."""
WAITING_DUE_MS = NEVER_DUE_MS + 2
"""The due time of a job that waits for a signal without a timeout."""
WAIT_PREFIX = "wait_for "
"""The start of a wait's name in the history."""


class StoredSignal(msgspec.Struct, array_like=True, frozen=True):
    """A signal that waits. Add fields at the end, with defaults: other versions read these."""

    name: str
    content: bytes
    """The value as JSON; encoded by the codecs of the app."""


class NewSignal(NamedTuple):
    """A signal as it is sent: the digest of its id makes sure that it is kept once."""

    name: str
    digest: str
    stored: bytes


class SignalWait(msgspec.Struct, frozen=True):
    """A wait for a signal: its name, the type of its value, and how long it may take."""

    name: str
    type: Any
    timeout: float | None
    hold_lane: bool

    def due_ms(self, now_ms: int) -> int:
        """The end of the wait in milliseconds, on the server's clock."""
        return WAITING_DUE_MS if self.timeout is None else now_ms + round(self.timeout * 1000)

    def schema(self, hooks: ValueHooks = DEFAULT_HOOKS) -> bytes:
        """The JSON Schema of its type, for forms; empty if there is none, or if it is large."""
        try:
            return _schema(self.type, hooks)
        except TypeError:  # a type without a hash
            return _schema.__wrapped__(self.type, hooks)

    def too_late(self) -> SignalTimeout:
        """No signal came in time."""
        return SignalTimeout(f'signal "{self.name}": none came within {self.timeout:g} s')

    def decode(self, content: bytes, hooks: ValueHooks = DEFAULT_HOOKS) -> Any:
        """The value. Raises SignalMismatch if it does not fit the type."""
        try:
            return decode_exactly(content, self.type, hooks)
        except PayloadError as error:
            shown = getattr(self.type, "__name__", None) or str(self.type)
            raise SignalMismatch(f'signal "{self.name}": its value does not fit {shown}: {error}') from None


@lru_cache(maxsize=256)
def _schema(kind: Any, hooks: ValueHooks) -> bytes:
    schema = None if kind is Any else type_schema(kind, hooks)
    encoded = b"" if schema is None else msgspec.json.encode(schema)
    return encoded if len(encoded) <= MAX_SIGNAL_SCHEMA_BYTES else b""


_encode_signal = msgspec.msgpack.Encoder().encode
_decode_signal = msgspec.msgpack.Decoder(StoredSignal).decode


def check_signal_name(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_SIGNAL_NAME_CHARS:
        raise ArgumentsError(f"signal {name!r}: give a name of 1 to {MAX_SIGNAL_NAME_CHARS} characters")


def refuse_signals(task: str, spec: TaskSpec | None) -> None:
    """Refuse to send a signal to a task that cannot take any. None for a task whose code is elsewhere."""
    if spec is not None and not spec.durable:
        raise Conflict(
            f'task "{task}": it takes no signals, because it is not durable; declare it with durable=True'
        )


def encode_signal_value(name: str, value: Any, hooks: ValueHooks = DEFAULT_HOOKS) -> bytes:
    """The value of a signal as JSON. Raises PayloadError if that is impossible."""
    try:
        return encode_result(value, MAX_SIGNAL_BYTES, hooks)
    except TooLarge:
        raise TooLarge(
            f'signal "{name}": its value takes more than {MAX_SIGNAL_BYTES:,} bytes; send a reference instead'
        ) from None
    except PayloadError:
        raise PayloadError(
            f'signal "{name}": a value of type {type(value).__name__} has no JSON form'
        ) from None


def new_signal(name: str, content: bytes, id: str) -> NewSignal:
    """A signal with this id."""
    digest = blake2b(id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return NewSignal(name, digest, _encode_signal(StoredSignal(name, content)))


def read_signals(stored: Mapping[int, bytes]) -> dict[int, StoredSignal]:
    """Signals by number, in order. One that cannot be read has no name, so nothing waits for it."""
    found = {}
    for number in sorted(stored):
        try:
            found[number] = _decode_signal(stored[number])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            found[number] = StoredSignal("", b"null")
    return found
