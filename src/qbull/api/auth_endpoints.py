"""Auth endpoints: log in and out, tokens, and the audit log."""

from __future__ import annotations

from starlette.requests import Request

import qbull
from qbull.api.auth import SECURE_SESSION_COOKIE, SESSION_COOKIE, cookie_name, cookie_of
from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing, Reply
from qbull.api.problems import ApiProblem
from qbull.core.access import check_scope
from qbull.core.record import to_datetime
from qbull.store.verbs import audit_log, tokens
from qbull.views import access as views
from qbull.views.shape import view_of


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
    )


async def log_in(call: ApiCall[Nothing, views.LoginBody]) -> Reply:
    asked = call.body
    if (asked.password is None) == (asked.token is None):
        raise ApiProblem(400, "body: give the password or a token")
    text, session = await call.context.auth.log_in(call.request, asked.password, asked.token)
    call.audit_details["who"] = session.name
    done = views.DoneView(message=f"logged in as {session.name}, {session.role}", timestamp=now())
    return Reply(done, cookie=session_cookie(call.request, text, int(call.context.access.session_longest)))


async def log_out(call: ApiCall[Nothing, Nothing]) -> Reply:
    text = cookie_of(call.request)
    if text is not None:
        await call.context.auth.log_out(text)
    return Reply(
        views.DoneView(message="logged out", timestamp=now()), cookie=session_cookie(call.request, "", 0)
    )


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
    call.audit_details["token"] = token.id
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
    found = await audit_log.read(store, limit, call.query.before)
    entries = [
        view_of(views.AuditEntryView, one.entry, id=one.id, at=to_datetime(one.at_ms)) for one in found
    ]
    return views.AuditPageView(
        timestamp=now(), entries=entries, next=found[-1].id if len(found) == limit else None
    )


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
        answer=views.DoneView,
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
        summary="Read the audit log, the newest entry first",
        handler=audit,
        query=views.AuditQuery,
        answer=views.AuditPageView,
    ),
]
