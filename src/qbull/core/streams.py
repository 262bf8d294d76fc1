"""Streams: the values that a job emits while it runs, in the order in which they came.

A value has a number, from 1. It also has a key that recognises it if it is sent again: the position of the
delivery and a count, or for a durable task a digest of the value and how often the task has emitted it. So a
run that starts over does not repeat the values of the runs before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from qbull.core.codec import encode_result
from qbull.core.values import DEFAULT_HOOKS, ValueHooks
from qbull.errors import MAX_COUNT, MAX_DELAY_SECONDS, ConfigError, PayloadError, TooLarge

MAX_EMITTED_BYTES = 256 << 10
"""The size of one value as JSON."""
MAX_REMEMBERED_VALUES = 10_000
"""Values of a durable task outside its steps, between two checkpoints."""
EMITTED_FIELD = b"emit:"
"""The start of a remembered value's name in the data of its job (store/names.py)."""


@dataclass(frozen=True)
class StreamLimits:
    """How much of a job's stream stays on the server: the newest values within all of these limits.

    Args:
        max_values: maximum number of values.
        max_bytes: maximum size of all values in bytes.
        keep_seconds: seconds that the stream stays after its last value.
    """

    max_values: int = 10_000
    max_bytes: int = 1 << 20
    keep_seconds: float = 86_400

    def __post_init__(self) -> None:
        for name, most in (("max_values", MAX_COUNT), ("max_bytes", 1 << 30)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise ConfigError(f"StreamLimits({name}={value!r}): give a whole number from 1 to {most:,}")
        seconds = self.keep_seconds
        if not isinstance(seconds, int | float) or not 0.001 <= seconds <= MAX_DELAY_SECONDS:
            raise ConfigError(
                f"StreamLimits(keep_seconds={seconds!r}): give 0.001 to {MAX_DELAY_SECONDS:,} seconds"
            )


DEFAULT_STREAM_LIMITS = StreamLimits()


class StreamEntry(NamedTuple):
    """A value of a stream as the server has it."""

    number: int
    key: bytes
    content: bytes
    """The value as JSON; encoded by the codecs of the app."""


class EmittedKey(NamedTuple):
    """Recognises a value that is emitted again. `name` is empty outside of durable tasks and in steps."""

    name: str
    times: int

    def text(self, position: bytes) -> bytes:
        """The key in the stream. `position` is that of the delivery."""
        return b"%s:%d" % (self.name.encode() or position, self.times)


UNNAMED_VALUE = EmittedKey("", 0)
"""The key of a value that no run repeats by itself. The worker counts these."""


class EmittedValues:
    """The values that a durable job has emitted outside of its steps: in all runs, and in this one.

    Args:
        known: how often each value was emitted, by its name.
    """

    def __init__(self, known: dict[str, int] | None = None) -> None:
        self._known = known or {}
        self._asked: dict[str, int] = {}

    def next(self, position: str, content: bytes) -> EmittedKey | None:
        """The key of a value that the task emits now; None if the stream has it.

        `position` says after which checkpoints: the same value may come again after each of them.
        """
        name = f"{position}:{blake2b(content, digest_size=8).hexdigest()}"
        times = self._asked[name] = self._asked.get(name, 0) + 1
        return EmittedKey(name, times) if times > self._known.get(name, 0) else None

    def rewind(self, position: str) -> None:
        """A checkpoint has moved: forget the values that can no longer come again."""
        for values in (self._known, self._asked):
            for name in [name for name in values if not is_before(name.partition(":")[0], position)]:
                del values[name]

    @property
    def is_full(self) -> bool:
        """Whether the task has emitted more than a job remembers."""
        return len(self._asked) > MAX_REMEMBERED_VALUES


def is_before(earlier: str, position: str) -> bool:
    """Whether a run that is at a position has passed an earlier one since its start."""
    return earlier in ("", position) or position.startswith(earlier + "/")


def encode_emitted(task: str, value: Any, hooks: ValueHooks = DEFAULT_HOOKS) -> bytes:
    """A value as JSON. Raises PayloadError if that is impossible."""
    try:
        return encode_result(value, MAX_EMITTED_BYTES, hooks)
    except TooLarge:
        raise TooLarge(
            f'task "{task}": an emitted value takes more than {MAX_EMITTED_BYTES:,} bytes; emit it in parts, '
            "or emit a reference"
        ) from None
    except PayloadError as error:
        text = str(error).replace("its result cannot be encoded", "it emits a value that cannot be encoded")
        raise PayloadError(f'task "{task}": {text}') from None
