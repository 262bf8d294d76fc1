"""Headers of a request, read where they lie. Starlette's own way copies and decodes more than is asked for, several times a request."""

from __future__ import annotations

from starlette.requests import Request


def header(request: Request, wanted: bytes) -> str | None:
    """The first of this name, which is given in small letters."""
    for name, value in request.scope["headers"]:
        if name == wanted:
            text: str = value.decode("latin-1")
            return text
    return None
