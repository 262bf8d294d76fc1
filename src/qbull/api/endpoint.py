"""Endpoint: one line of the API's table. It drives the route, the role, the validation, the audit and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from qbull.core.access import Role

if TYPE_CHECKING:
    from qbull.api.auth import Caller
    from qbull.api.context import ApiContext

Q = TypeVar("Q")
B = TypeVar("B")

Method = Literal["GET", "POST", "PUT", "DELETE"]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No query, or no body."""


NOTHING = Nothing()


@dataclass(slots=True)
class ApiCall(Generic[Q, B]):
    """One request, checked: who calls, what the path says, the query and the body in their shapes."""

    context: ApiContext
    request: Request
    caller: Caller
    path: Mapping[str, str]
    query: Q
    body: B
    audit_details: dict[str, Any] = field(default_factory=dict)
    """What the audit says about it, besides who, what and which."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with another status than the endpoint's own, or with headers."""

    value: Any
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cookie: str | None = None


Handler = Callable[[ApiCall[Any, Any]], Awaitable[msgspec.Struct | Reply | Response]]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """`audit` is the word for it in the audit; None where nothing is changed. `answers` are other statuses on success.

    `media` is said of answers that are not JSON.
    """

    method: Method
    path: str
    role: Role
    summary: str
    handler: Handler
    answer: Any
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] = Nothing
    status: int = 200
    answers: tuple[int, ...] = ()
    problems: tuple[int, ...] = ()
    audit: str | None = None
    counted: bool = False
    """Written down together with others of its kind: it comes many times a second."""
    media: str = "application/json"
    body_optional: bool = False
    rule: Mapping[str, Any] = field(default_factory=dict)
    """What the shape of its body cannot say, as JSON Schema."""

    @property
    def tag(self) -> str:
        """Which group it belongs to, in the document."""
        parts = [part for part in self.path.split("/") if part and part != "api"]
        return parts[0] if parts else "page"

    @cached_property
    def parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @cached_property
    def name(self) -> str:
        """Unique in the table."""
        return str(getattr(self.handler, "__name__", "")) or self.path
