"""Shapes of sessions, tokens and the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from qbull.core.access import MAX_SCOPE_PATTERNS, TokenRole
from qbull.core.audit_chain import ChainReport
from qbull.core.record import to_datetime
from qbull.store.verbs.audit_log import AuditLogRecord, AuditStream
from qbull.store.verbs.tokens import Token
from qbull.views.shape import (
    MAX_API_DURATION_SECONDS,
    AnswerShape,
    Instant,
    Shape,
    Timestamp,
    instant,
    view_of,
)


class LoginBody(Shape, kw_only=True):
    """Credentials: the dashboard's password, a token, or the code of the login link of `qbull dev`."""

    password: Annotated[str, Meta(max_length=500)] | None = None
    token: Annotated[str, Meta(max_length=500)] | None = None
    code: Annotated[str, Meta(max_length=500)] | None = None


ONE_CREDENTIAL = {
    "oneOf": [
        {"required": [name], "properties": {name: {"type": "string"}}}
        for name in ("password", "token", "code")
    ]
}


class MeView(AnswerShape, kw_only=True):
    """The caller, its role and its rights. `queues` is the scope of its token; empty for all queues.
    `environment` is the name of this deployment, empty if it has none.
    """

    name: str
    role: TokenRole
    queues: list[str]
    how: Literal["token", "basic", "session"]
    sees_payloads: bool
    app: str
    version: str
    environment: str


class DoneView(Shape, kw_only=True):
    """The action succeeded; `message` describes it."""

    success: bool = True
    message: str
    timestamp: Timestamp


class LoggedOutView(Shape, kw_only=True):
    """The session has ended. At `provider`, a browser ends the one that it has for single sign-on."""

    success: bool = True
    message: str
    timestamp: Timestamp
    provider: str | None


QueuePattern = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._*?-]+$")]
"""The name of a queue, or a pattern with * and ?."""


class NewTokenBody(Shape, kw_only=True):
    """A new token. `queues` are names of queues or patterns such as `mail-*`; without them the token is for
    all queues. `expiresIn` is seconds; without it the token is valid until it is revoked.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
    role: TokenRole
    queues: Annotated[tuple[QueuePattern, ...], Meta(max_length=MAX_SCOPE_PATTERNS)] = ()
    expires_in: Annotated[float, Meta(gt=0, le=MAX_API_DURATION_SECONDS)] | None = None


class RotateBody(Shape, kw_only=True):
    """A new secret for a token. The present one stays valid for `overlap` seconds. `expiresIn` is seconds;
    without it, the token is valid for as long as before.
    """

    overlap: Annotated[float, Meta(ge=0, le=MAX_API_DURATION_SECONDS)] = 0.0
    expires_in: Annotated[float, Meta(gt=0, le=MAX_API_DURATION_SECONDS)] | None = None


class TokenView(Shape, kw_only=True):
    """A token without its secret, which is not stored."""

    id: str
    name: str
    role: TokenRole
    queues: list[str]
    created_at: Instant
    created_by: str
    rotated_at: Instant | None
    expires_at: Instant | None
    last_used_at: Instant | None

    @classmethod
    def of(cls, token: Token) -> TokenView:
        return view_of(
            cls,
            token,
            queues=list(token.queues),
            created_at=instant(token.created_ms),
            rotated_at=instant(token.rotated_ms),
            expires_at=instant(token.expires_ms),
            last_used_at=instant(token.used_ms),
        )


class TokensView(AnswerShape, kw_only=True):
    """The newest first."""

    tokens: list[TokenView]


class CreatedTokenView(AnswerShape, kw_only=True):
    """A new token. `token` is shown only here."""

    token: str
    details: TokenView


SearchText = Annotated[str, Meta(min_length=1, max_length=300)]


class AuditFilterQuery(Shape, kw_only=True):
    """Which entries of the audit log: `target` is a part of it, `search` is anywhere in an entry, `since` is
    a time such as yesterday or 2h.
    """

    who: SearchText | None = None
    action: SearchText | None = None
    target: SearchText | None = None
    search: SearchText | None = None
    since: SearchText | None = None


class AuditQuery(AuditFilterQuery, kw_only=True):
    """A page of the audit log, the newest entry first; `before` is the id of the last entry seen. The filters
    are as for the export.
    """

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: Annotated[str, Meta(pattern=r"^[0-9]{1,15}-[0-9]{1,15}$")] | None = None


class AuditEntryView(Shape, kw_only=True):
    """One entry of the audit log: who did what, when, from where, why, and the status of the answer. `detail`
    has `before` and `after` if something was replaced. `count` is more than 1 if several calls were counted
    together. `stream`, `number` and `hash` are its link in the chain; an entry of an older version has none.
    """

    id: str
    at: Instant
    who: str
    role: str
    how: str
    action: str
    target: str
    status: int
    detail: dict[str, Any]
    address: str
    count: int
    reason: str
    stream: Literal["trail", "programs", "strangers"]
    number: int
    hash: str

    @classmethod
    def of(cls, record: AuditLogRecord) -> AuditEntryView:
        return view_of(
            cls,
            record.entry,
            id=record.id,
            at=to_datetime(record.at_ms),
            stream=record.stream,
            number=record.number,
            hash=record.hash,
        )


class AuditPageView(AnswerShape, kw_only=True):
    """A page of the audit log. `next` is the `before` of the next page; null on the last page."""

    entries: list[AuditEntryView]
    next: str | None


class AuditChainView(Shape, kw_only=True):
    """The check of one stream of the audit log. `last` is the number and the hash of its last entry: keep it
    elsewhere to notice later that the whole chain was replaced.
    """

    stream: Literal["trail", "programs", "strangers"]
    entries: int
    unchained: int
    last: str
    faults: list[str]

    @classmethod
    def of(cls, stream: AuditStream, report: ChainReport) -> AuditChainView:
        return view_of(
            cls,
            report,
            stream=stream,
            last=f"{report.head.number}:{report.head.hash}",
            faults=list(report.faults),
        )


class AuditCheckView(AnswerShape, kw_only=True):
    """Whether the audit log is complete: no stream has faults."""

    complete: bool
    streams: list[AuditChainView]
