"""Pickles: read the arguments of RQ's jobs without running anything.

A pickle is a program, and reading one runs it. This reader allows only plain data, dates and the like. It
refuses everything else by name, before anything is called.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections import OrderedDict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from qbull.drain.message import CannotMove

MAX_UNPACKED_BYTES = 64 << 20
"""Maximum size of one job's arguments, unpacked."""
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
        return _plain(_RestrictedUnpickler(io.BytesIO(data)).load())
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


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {_plain(key): _plain(one) for key, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case tuple():
            return tuple(_plain(one) for one in value)
        case set() | frozenset():
            return {_plain(one) for one in value}
        case type():
            raise CannotMove(f"its arguments have the type {value.__name__}, which is not plain data")
        case UUID():
            return UUID(int=value.int)
    return value
