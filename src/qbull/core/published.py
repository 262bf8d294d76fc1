"""Published values: a durable task shows values by name, which anybody with the job's handle can read.

A value is in the data of its job. It is written together with the record of the call (lua/history_write.lua),
so a run that starts again does not write it again: the value never goes back to an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from qbull.core.codec import encode_result
from qbull.core.values import DEFAULT_HOOKS, ValueHooks
from qbull.errors import ArgumentsError, PayloadError, TooLarge

MAX_PUBLISHED_NAMES = 100
"""Names of one job."""
MAX_PUBLISHED_BYTES = 256 << 10
"""The size of all values of a job."""
MAX_PUBLISHED_VALUE_BYTES = 64 << 10
"""The size of one value as JSON."""
MAX_PUBLISHED_NAME_CHARS = 100
PUBLISHED_FIELD = b"published:"
"""The start of a value's name in the data of its job (store/names.py)."""
PUBLISH_PREFIX = "publish "
"""The start of the name in the history."""


class PublishedValue(NamedTuple):
    """A value as the data of its job has it; `content` is encoded by the codecs of the app."""

    name: str
    content: bytes


class PublishedSizes:
    """The names that a job has published, and the size of each value.

    Args:
        known: the sizes by name.
    """

    def __init__(self, known: Mapping[str, int]) -> None:
        self._known = dict(known)

    def bound_of(self, value: PublishedValue) -> str | None:
        """The bound that the job would exceed with this value; None if there is none."""
        after = self._known | {value.name: len(value.content)}
        if len(after) > MAX_PUBLISHED_NAMES:
            return f"{MAX_PUBLISHED_NAMES} names"
        return f"{MAX_PUBLISHED_BYTES:,} bytes" if sum(after.values()) > MAX_PUBLISHED_BYTES else None

    def put(self, value: PublishedValue) -> None:
        """The server has this value."""
        self._known[value.name] = len(value.content)


def read_published(fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """The published values in the data of a job, by name."""
    return {
        name.removeprefix(PUBLISHED_FIELD).decode("utf-8", "replace"): content
        for name, content in fields.items()
        if name.startswith(PUBLISHED_FIELD)
    }


def check_published_name(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PUBLISHED_NAME_CHARS or not _is_text(name):
        raise ArgumentsError(
            f"published value {name!r}: give a name of 1 to {MAX_PUBLISHED_NAME_CHARS} characters"
        )


def _is_text(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)


def encode_published_value(name: str, value: Any, hooks: ValueHooks = DEFAULT_HOOKS) -> bytes:
    """A value as JSON. Raises PayloadError if that is impossible."""
    try:
        return encode_result(value, MAX_PUBLISHED_VALUE_BYTES, hooks)
    except TooLarge:
        raise TooLarge(
            f'publish("{name}"): the value takes more than {MAX_PUBLISHED_VALUE_BYTES:,} bytes; '
            "publish a reference instead"
        ) from None
    except PayloadError as error:
        reason = str(error).removeprefix("its result cannot be encoded: ")
        raise PayloadError(f'publish("{name}"): the value cannot be encoded: {reason}') from None
