"""Headers of a request, read in place: Starlette copies and decodes all of them on each access."""

from __future__ import annotations

from starlette.requests import Request

REASON_HEADER = "X-Qbull-Reason"
"""Why a call changes something, for the audit log."""


def header(request: Request, wanted: bytes) -> str | None:
    """The first header of this name, which must be in lower case."""
    for name, value in request.scope["headers"]:
        if name == wanted:
            text: str = value.decode("latin-1")
            return text
    return None
