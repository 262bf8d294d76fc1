"""The exceptions of RQ, as names of qbull's own errors: `except NoSuchJobError` catches the same case."""

from __future__ import annotations

from qbull.errors import ArgumentsError, Conflict, NotFound, PayloadError

NoSuchJobError = NotFound
InvalidJobOperation = InvalidJobOperationError = Conflict
TimeoutFormatError = ArgumentsError
DeserializationError = PayloadError

__all__ = [
    "DeserializationError",
    "InvalidJobOperation",
    "InvalidJobOperationError",
    "NoSuchJobError",
    "TimeoutFormatError",
]
