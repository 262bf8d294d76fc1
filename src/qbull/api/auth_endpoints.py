"""Auth endpoints: log in and out, tokens, and the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

import qbull
from qbull.api.auth import SECURE_SESSION_COOKIE, SESSION_COOKIE, cookie_name, cookie_of
from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing, Reply
from qbull.api.filters import past_moment
from qbull.api.problems import ApiProblem
from qbull.core.access import check_scope
from qbull.store.verbs import audit_log, tokens
from qbull.store.verbs.audit_log import AuditSearch
from qbull.views import access as views
from qbull.views.shape import to_plain

JSON_LINES = "application/jsonl"


async def me(call: ApiCall[Nothing, Nothing]) -> views.MeView:
    caller = call.caller
    assert caller.role != "open"
    assert caller.how != "nobody"
    return views.MeView(
        timestamp=now(),
        name=caller.name,
        role=caller.role,
        queues=list(caller.queues),
        how=caller.how,
        sees_payloads=call.context.redaction.sees_payloads(caller),
        app=call.context.app.prefix,
        version=qbull.__version__,
        environment=call.context.access.environment,
    )


async def log_in(call: ApiCall[Nothing, views.LoginBody]) -> Reply:
    asked = call.body
    if sum(given is not None for given in (asked.password, asked.token, asked.code)) != 1:
        raise ApiProblem(400, "body: give the password, a token or the code of a login link")
    text, session = await call.context.auth.log_in(call.request, asked.password, asked.token, asked.code)
    call.audit_details["who"] = session.name
    done = views.DoneView(message=f"logged in as {session.name}, {session.role}", timestamp=now())
    return Reply(done, cookie=session_cookie(call.request, text, int(call.context.access.session_longest)))


async def log_out(call: ApiCall[Nothing, Nothing]) -> Reply:
    text, provider = cookie_of(call.request), None
    session = None if text is None else await call.context.auth.log_out(text)
    sign_on = call.context.single_sign_on
    if session is not None and session.issuer is not None and sign_on is not None:
        provider = await sign_on.logout_address(session.id_token)
    done = views.LoggedOutView(message="logged out", timestamp=now(), provider=provider)
    return Reply(done, cookie=session_cookie(call.request, "", 0))


async def log_all_out(call: ApiCall[Nothing, Nothing]) -> views.DoneView:
    count = await call.context.auth.log_all_out()
    return views.DoneView(message=f"{count} sessions were ended", timestamp=now())


def session_cookie(request: Request, text: str, seconds: int) -> str:
    """The cookie that a log-in gets, whatever it was proved with."""
    name = cookie_name(request)
    root = request.scope.get("root_path", "")
    place = "/" if name == SECURE_SESSION_COOKIE else f"{root}/"
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    assert name in (SESSION_COOKIE, SECURE_SESSION_COOKIE)
    return f"{name}={text}; Path={place}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


async def list_tokens(call: ApiCall[Nothing, Nothing]) -> views.TokensView:
    store = call.context.store
    found = await tokens.list_all(store)
    return views.TokensView(timestamp=now(), tokens=[views.TokenView.of(token) for token in found])


async def create_token(call: ApiCall[Nothing, views.NewTokenBody]) -> views.CreatedTokenView:
    asked, store = call.body, call.context.store
    if not asked.name.isprintable():
        raise ApiProblem(400, "body: name: use printable characters")
    queues = check_scope(asked.queues)
    call.audit_details.update(target=asked.name, role=asked.role, **({"queues": queues} if queues else {}))
    by, lasts = call.caller.name, asked.expires_in
    token, text = await tokens.create(store, asked.name, asked.role, by=by, lasts=lasts, queues=queues)
    return views.CreatedTokenView(timestamp=now(), token=text, details=views.TokenView.of(token))


async def rotate_token(call: ApiCall[Nothing, views.RotateBody]) -> views.CreatedTokenView:
    asked = call.body
    call.audit_details["overlap"] = asked.overlap
    token, text = await tokens.rotate(
        call.context.store, call.path["token"], overlap=asked.overlap, lasts=asked.expires_in
    )
    call.context.auth.forget()
    return views.CreatedTokenView(timestamp=now(), token=text, details=views.TokenView.of(token))


async def revoke_token(call: ApiCall[Nothing, Nothing]) -> views.DoneView:
    store, id = call.context.store, call.path["token"]
    await tokens.revoke(store, id)
    call.context.auth.forget()
    return views.DoneView(message=f"token {id} was revoked", timestamp=now())


async def audit(call: ApiCall[views.AuditQuery, Nothing]) -> views.AuditPageView:
    store, limit = call.context.store, call.query.limit
    found = await audit_log.search(store, limit, _wanted(call), call.query.before)
    return views.AuditPageView(
        timestamp=now(),
        entries=[views.AuditEntryView.of(one) for one in found],
        next=found[-1].id if len(found) == limit else None,
    )


async def export_audit(call: ApiCall[views.AuditFilterQuery, Nothing]) -> StreamingResponse:
    found = audit_log.found(call.context.store, _wanted(call))

    async def lines() -> AsyncIterator[bytes]:
        async for record in found:
            yield msgspec.json.encode(to_plain(views.AuditEntryView.of(record))) + b"\n"

    headers = {"content-disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(lines(), media_type=JSON_LINES, headers=headers)


async def verify_audit(call: ApiCall[Nothing, Nothing]) -> views.AuditCheckView:
    streams = [
        views.AuditChainView.of(stream, await audit_log.verify(call.context.store, stream))
        for stream in audit_log.MAX_AUDIT_ENTRIES
    ]
    complete = not any(one.faults for one in streams)
    return views.AuditCheckView(timestamp=now(), complete=complete, streams=streams)


def _wanted(call: ApiCall[Any, Nothing]) -> AuditSearch:
    """The search of a caller, in the entries as he may see them."""
    query: views.AuditFilterQuery = call.query
    shown = partial(call.context.redaction.audit_record, caller=call.caller)
    since = past_moment("since", query.since) if query.since is not None else None
    since_ms = int(since.timestamp() * 1000) if since is not None else 0
    return AuditSearch(query.who, query.action, query.target, query.search, since_ms, shown)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/me",
        role="viewer",
        scope="none",
        summary="Show the caller, its role and its rights",
        handler=me,
        answer=views.MeView,
    ),
    Endpoint(
        method="POST",
        path="/api/login",
        role="open",
        scope="none",
        summary="Log in with the password or a token; the session is in a cookie",
        handler=log_in,
        body=views.LoginBody,
        rule=views.ONE_CREDENTIAL,
        answer=views.DoneView,
        problems=(401, 403, 421, 429),
        audit="log in",
    ),
    Endpoint(
        method="POST",
        path="/api/logout",
        role="viewer",
        scope="none",
        summary="End the session",
        handler=log_out,
        answer=views.LoggedOutView,
        audit="log out",
    ),
    Endpoint(
        method="DELETE",
        path="/api/sessions",
        role="admin",
        summary="End all sessions",
        handler=log_all_out,
        answer=views.DoneView,
        audit="end all sessions",
    ),
    Endpoint(
        method="GET",
        path="/api/tokens",
        role="admin",
        summary="List the tokens, the newest first",
        handler=list_tokens,
        answer=views.TokensView,
    ),
    Endpoint(
        method="POST",
        path="/api/tokens",
        role="admin",
        summary="Create a token; only this answer shows it",
        handler=create_token,
        body=views.NewTokenBody,
        answer=views.CreatedTokenView,
        status=201,
        problems=(409,),
        audit="create token",
    ),
    Endpoint(
        method="POST",
        path="/api/tokens/{token}/rotate",
        role="admin",
        summary="Give a token a new secret; only this answer shows it",
        handler=rotate_token,
        body=views.RotateBody,
        body_optional=True,
        answer=views.CreatedTokenView,
        problems=(404, 409),
        audit="rotate token",
    ),
    Endpoint(
        method="DELETE",
        path="/api/tokens/{token}",
        role="admin",
        summary="Revoke a token",
        handler=revoke_token,
        answer=views.DoneView,
        problems=(404,),
        audit="revoke token",
    ),
    Endpoint(
        method="GET",
        path="/api/audit",
        role="viewer",
        summary="Read and search the audit log, the newest entry first",
        handler=audit,
        query=views.AuditQuery,
        answer=views.AuditPageView,
    ),
    Endpoint(
        method="GET",
        path="/api/audit/export",
        role="viewer",
        summary="Export the audit log as JSON lines, the newest entry first",
        handler=export_audit,
        query=views.AuditFilterQuery,
        answer=str,
        media=JSON_LINES,
    ),
    Endpoint(
        method="GET",
        path="/api/audit/verify",
        role="viewer",
        summary="Check that no entry of the audit log was removed or changed",
        handler=verify_audit,
        answer=views.AuditCheckView,
    ),
]
