"""Problems: errors as application/problem+json (RFC 9457). The one place that turns exceptions into answers.

The caller is told about mistakes in the request. Internal errors are logged with a number, and the answer has
only that number.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping

import msgspec

from qbull.errors import (
    ConfigError,
    Conflict,
    EmbeddedError,
    NotConfirmed,
    NotFound,
    PayloadError,
    QbullError,
    ServerAway,
    ServerError,
    TooLarge,
)

log = logging.getLogger("qbull.api")

STATUS_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Payload Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class InvalidField(msgspec.Struct, frozen=True):
    """One invalid field of the input, and the reason."""

    field: str
    reason: str


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document. `type` is for programs, `detail` for people; `errors` lists the invalid fields."""

    type: str
    title: str
    status: int
    detail: str
    success: bool = False
    errors: list[InvalidField] = []


class ApiProblem(QbullError):
    """An error answer with its status."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: list[InvalidField] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.errors = errors or []
        self.headers = dict(headers or {})

    def body(self) -> ProblemBody:
        title = STATUS_TITLES[self.status]
        kind = f"urn:qbull:{title.lower().replace(' ', '-')}"
        return ProblemBody(type=kind, title=title, status=self.status, detail=str(self), errors=self.errors)


def problem_of(error: BaseException) -> ApiProblem:
    """The problem for any exception."""
    match error:
        case ApiProblem():
            return error
        case NotFound():
            return ApiProblem(404, str(error))
        case Conflict():
            return ApiProblem(409, str(error))
        case TooLarge():
            return ApiProblem(413, str(error))
        case PayloadError() | ConfigError():
            return ApiProblem(400, str(error))
        case ServerAway() | EmbeddedError():
            log.warning("%s", error)
            return ApiProblem(503, "the job server is unavailable; try again", headers={"retry-after": "1"})
        case NotConfirmed():
            return ApiProblem(503, str(error), headers={"retry-after": "1"})
        case ServerError():
            log.error("%s", error)
            return ApiProblem(
                503, "the job server refused the command; see the API's log", headers={"retry-after": "5"}
            )
        case _:
            number = secrets.token_hex(6)
            log.error("request %s: unexpected error", number, exc_info=error)
            return ApiProblem(500, f"internal error; see number {number} in the API's log")


_ERROR_PATH = re.compile(r" - at `(key in )?\$\.?([^`]*)`$")


def wrong_input(where: str, error: msgspec.ValidationError) -> ApiProblem:
    """Turn a validation error such as `Expected `int`, got `str` - at `$.start`` into a problem that names
    the field.
    """
    text = str(error)
    at = _ERROR_PATH.search(text)
    fact = (text[: at.start()] if at else text).replace("`", "")
    name = at.group(2) if at else ""
    unknown = re.search(r"unknown field (.+)$", fact)
    missing = re.search(r"missing required field (.+)$", fact)
    if unknown is not None or missing is not None:
        inner = (unknown or missing).group(1)  # type: ignore[union-attr]
        name = f"{name}.{inner}" if name else inner
        fact = "is unknown" if unknown is not None else "is missing"
    else:
        fact = fact[:1].lower() + fact[1:]
    return ApiProblem(400, f"{where}: {name + ': ' if name else ''}{fact}", errors=[InvalidField(name, fact)])
