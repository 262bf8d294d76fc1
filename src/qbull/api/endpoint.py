"""Endpoint: one row of the API's table. It drives route, role, validation, audit and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from qbull.api.problems import ApiProblem
from qbull.core.access import Role, TokenRole

if TYPE_CHECKING:
    from qbull.api.auth import Caller
    from qbull.api.context import ApiContext

Q = TypeVar("Q")
B = TypeVar("B")

Method = Literal["GET", "POST", "PUT", "DELETE"]
EndpointScope = Literal["app", "queue", "queues", "none"]
"""How an endpoint treats callers whose token is for some queues only.

"app": it refuses them. "queue": the queue in its path must be one of theirs. "queues": it shows and changes
only what belongs to their queues. "none": it concerns no queue.
"""


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No query, or no body."""


NOTHING = Nothing()


@dataclass(slots=True)
class ApiCall(Generic[Q, B]):
    """One validated request: the caller, the path's parameters, the query and the body."""

    context: ApiContext
    request: Request
    caller: Caller
    path: Mapping[str, str]
    query: Q
    body: B
    audit_details: dict[str, Any] = field(default_factory=dict)
    """More for the audit entry than caller, action and target."""

    def check_queue(self, queue: str) -> None:
        """Refuse the call if the caller's token is for other queues."""
        check_queue(self.caller, queue)


def check_queue(caller: Caller, queue: str) -> None:
    if not caller.may_use(queue):
        raise ApiProblem(403, f"{caller.name} has a token for other queues")


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
    """One row of the table.

    `scope` is the treatment of tokens for some queues. `action_roles` are the roles for values of the body's
    `action` that need more than `role`. `audit` is the name of the action in the audit log, None if the
    endpoint changes nothing. `answers` are further statuses of success. `media` is the type of answers that
    are not JSON.
    """

    method: Method
    path: str
    role: Role
    summary: str
    handler: Handler
    answer: Any
    scope: EndpointScope = "app"
    """Always "queue" if the path names a queue."""
    action_roles: Mapping[str, TokenRole] = field(default_factory=dict)
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] = Nothing
    status: int = 200
    answers: tuple[int, ...] = ()
    problems: tuple[int, ...] = ()
    audit: str | None = None
    counted: bool = False
    """Audited as a count: programs call it many times a second."""
    media: str = "application/json"
    events: tuple[str, ...] = ()
    """The names of the events, if the answer is a stream of server-sent events."""
    body_optional: bool = False
    rule: Mapping[str, Any] = field(default_factory=dict)
    """Constraints on the body that its shape cannot express, as JSON Schema."""

    def __post_init__(self) -> None:
        if "{queue}" in self.path:
            object.__setattr__(self, "scope", "queue")

    @property
    def tag(self) -> str:
        """The endpoint's group in the OpenAPI document."""
        parts = [part for part in self.path.split("/") if part and part != "api"]
        return parts[0] if parts else "page"

    @cached_property
    def parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @cached_property
    def name(self) -> str:
        """The endpoint's unique name."""
        return str(getattr(self.handler, "__name__", "")) or self.path
