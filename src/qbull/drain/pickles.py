"""Pickles: read the arguments of RQ's jobs without running anything.

A pickle is a program, and reading one runs it. This reader allows only plain data, dates and the like. It
refuses everything else by name, before anything is called.

A few bytes can also build a value that takes all memory or all time: a list of lists that share their
content, or a note at a position far away. So the program is read step by step first, and has bounds.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zlib
from collections import OrderedDict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from qbull.drain.message import CannotMove

MAX_UNPACKED_BYTES = 64 << 20
"""Maximum size of one job's arguments, unpacked."""
MAX_PICKLE_STEPS = 2_000_000
MAX_SHARED_CONTAINERS = 8
"""How often a pickle may use a list, tuple, dictionary or set again. Each use can double the value."""
MAX_VALUES = 5_000_000
"""Values in the arguments of one job, with shared ones counted at each use."""
MAX_NUMBER_BITS = 4096
ALLOWED_CLASSES: dict[tuple[str, str], type] = {
    ("datetime", "datetime"): datetime,
    ("datetime", "date"): date,
    ("datetime", "time"): time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("decimal", "Decimal"): Decimal,
    ("uuid", "UUID"): UUID,
    ("collections", "OrderedDict"): OrderedDict,
}
"""Types that a pickle may create.

It cannot change them: they are written in C, or set their state themselves.
"""


def unpacked(data: bytes) -> bytes:
    """Decompress the arguments, which RQ usually compresses."""
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(data, MAX_UNPACKED_BYTES)
    except zlib.error:
        return data
    if reader.unconsumed_tail:
        raise CannotMove(f"its arguments take more than {MAX_UNPACKED_BYTES:,} bytes; let RQ run it")
    return plain


def read(data: bytes) -> Any:
    """Read a pickle that contains plain data only."""
    try:
        _check_steps(data)
        return _PlainCopy().of(_RestrictedUnpickler(io.BytesIO(data)).load())
    except CannotMove:
        raise
    # A broken pickle can raise anything.
    except Exception as error:
        raise CannotMove(f"its arguments cannot be read: {type(error).__name__}: {error}") from None


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED_CLASSES:
            raise CannotMove(
                f"its arguments have a {module}.{name}, which is not plain data; "
                "let RQ run it, or enqueue it again"
            )
        return ALLOWED_CLASSES[module, name]


_TOO_LARGE = "its arguments would take too much memory; let RQ run it"
_CONTAINER_STEPS = frozenset(
    [
        "EMPTY_LIST",
        "LIST",
        "EMPTY_DICT",
        "DICT",
        "EMPTY_SET",
        "FROZENSET",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "APPEND",
        "APPENDS",
        "SETITEM",
        "SETITEMS",
        "ADDITEMS",
    ]
)
_OBJECT_STEPS = frozenset(("REDUCE", "NEWOBJ", "NEWOBJ_EX", "BUILD", "INST", "OBJ"))
"""They make values of ALLOWED_CLASSES. Only OrderedDict among these is a container."""


def _check_steps(data: bytes) -> None:
    """Refuse a pickle whose value is much larger than its bytes."""
    noted: set[int] = set()
    containers: set[int] = set()
    shared = steps = 0
    previous = ""
    has_ordered = b"OrderedDict" in data
    for opcode, argument, _ in pickletools.genops(data):
        steps += 1
        name = opcode.name
        if name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            at = len(noted) if name == "MEMOIZE" else int(argument or 0)
            noted.add(at)
            if at > steps:
                raise CannotMove(_TOO_LARGE)
            containers.discard(at)
            if previous in _CONTAINER_STEPS or previous == "" or (has_ordered and previous in _OBJECT_STEPS):
                containers.add(at)
            continue  # `previous` stays: a value may be noted twice.
        if name in ("GET", "BINGET", "LONG_BINGET"):
            is_container = int(argument or 0) in containers
            shared += is_container
            previous = "LIST" if is_container else name
        else:
            # After these the topmost value is one from before, of any kind.
            previous = "" if name in ("POP", "POP_MARK", "MARK") else name
        if name == "DUP" or steps > MAX_PICKLE_STEPS or shared > MAX_SHARED_CONTAINERS:
            raise CannotMove(_TOO_LARGE)


class _PlainCopy:
    """Copies a value without anything but plain data, and counts its parts."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def of(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise CannotMove(_TOO_LARGE)
        match value:
            case dict():
                return {self.of(key): self.of(one) for key, one in value.items()}
            case list():
                return [self.of(one) for one in value]
            case tuple():
                return tuple(self.of(one) for one in value)
            case set() | frozenset():
                return {self.of(one) for one in value}
            case int() if value.bit_length() > MAX_NUMBER_BITS:
                raise CannotMove("its arguments have a number that is too large for JSON; let RQ run it")
            case type():
                raise CannotMove(f"its arguments have the type {value.__name__}, which is not plain data")
            case UUID():
                return UUID(int=value.int)
        return value
