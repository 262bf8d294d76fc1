"""The exceptions of RQ, as names of qbull's own errors: `except NoSuchJobError` catches the same case."""

from __future__ import annotations

from qbull.errors import ArgumentsError, Conflict, NotFound, PayloadError

NoSuchJobError = NotFound
InvalidJobOperation = InvalidJobOperationError = Conflict
TimeoutFormatError = ArgumentsError
DeserializationError = PayloadError


class RqArgumentsError(ArgumentsError, ValueError):
    """An argument that RQ refuses with ValueError too."""


class DuplicateJobError(Conflict):
    """A job with the same id exists, and the call was `unique=True`."""


class NoSuchGroupError(NotFound):
    """No group of this name has jobs."""


__all__ = [
    "DeserializationError",
    "DuplicateJobError",
    "InvalidJobOperation",
    "InvalidJobOperationError",
    "NoSuchGroupError",
    "NoSuchJobError",
    "TimeoutFormatError",
]
