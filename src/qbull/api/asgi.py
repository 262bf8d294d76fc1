"""The API as an ASGI application: every request takes the same path.

Find the endpoint, authenticate, guard, read, handle, audit, answer. Every exception on the way becomes a
problem document.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from qbull.api.auth import ANONYMOUS, ROLE_RANK, Caller
from qbull.api.body import read_body, read_query
from qbull.api.context import ApiContext
from qbull.api.dashboard import Dashboard
from qbull.api.endpoint import NOTHING, ApiCall, Endpoint, Nothing, Reply, check_queue
from qbull.api.guard import AllowedHosts, UndeclaredProxies, check_same_origin, guarded
from qbull.api.headers import REASON_HEADER, header
from qbull.api.problems import ApiProblem, problem_of
from qbull.api.routes import Router, path_of
from qbull.api.table import TABLE
from qbull.app import App
from qbull.core.access import Access, Role
from qbull.core.single_sign_on import SingleSignOn
from qbull.errors import ConfigError, NotFound
from qbull.store.audit import checked_reason, within_entry
from qbull.store.verbs.audit_log import AuditLogEntry
from qbull.views.shape import to_plain

if TYPE_CHECKING:
    from qbull.api.oidc_endpoints import SingleSignOnLogin

log = logging.getLogger("qbull.api")

BODY_OVERHEAD_BYTES = 64 * 1024
"""Room in a body besides the arguments of a job."""

_encode = msgspec.json.Encoder().encode


class Api:
    """The ASGI application that `qbull.asgi(app)` returns. It can be mounted in another ASGI application."""

    def __init__(self, app: App, access: Access) -> None:
        access.check_secrets()
        self.context = ApiContext(app, access)
        self._proxies = UndeclaredProxies()
        sign_on = access.single_sign_on
        login = self.context.single_sign_on = None if sign_on is None else _single_sign_on(sign_on)
        self._routes = Router([*TABLE, *(login.endpoints() if login is not None else ())])
        self._hosts = AllowedHosts(access.hosts if sign_on is None else (*access.hosts, sign_on.host))
        self._page = Dashboard(sign_on_label=None if sign_on is None else sign_on.label)
        self.body_limit = app.payload_limit + BODY_OVERHEAD_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1003})

    async def close(self) -> None:
        """End the open streams and flush the audit log."""
        self.context.shutting_down.set()
        await self.context.close()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except Exception as error:
            response = _problem(problem_of(error), request)
        response.raw_headers = guarded(response.raw_headers, tls=scope.get("scheme") == "https")
        try:
            await response(scope, receive, send)
        except Exception as error:  # A stream broke in the middle, so nobody can be told any more.
            problem_of(error)

    async def _respond(self, request: Request) -> Response:
        path = path_of(request.scope)
        found = self._routes.find(path)
        if found is None:
            self._hosts.check(request)
            return self._page.respond(request, path)
        endpoints, values = found
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = endpoints.get(method)
        if endpoint is None:
            allowed = ", ".join(sorted({*endpoints, *({"HEAD"} if "GET" in endpoints else ())}))
            raise ApiProblem(
                405, f"{request.method} is not allowed here; use {allowed}", headers={"allow": allowed}
            )
        return await self._serve(request, endpoint, dict(zip(endpoint.parameters, values, strict=True)))

    async def _serve(self, request: Request, endpoint: Endpoint, path: dict[str, str]) -> Response:
        caller = ANONYMOUS
        details: dict[str, Any] = {}
        status = 500
        try:
            self._proxies.check(request)
            required = self._required_role(endpoint)
            if required != "open":
                caller = await self.context.auth.caller(request)
            self._admit(request, endpoint, caller, required)
            if caller.queues:
                _check_scope(endpoint, caller, path)
            query = (
                NOTHING
                if endpoint.query is Nothing and not request.scope["query_string"]
                else read_query(request, endpoint.query)
            )
            body: msgspec.Struct = NOTHING
            if endpoint.body is not Nothing:
                body = await read_body(
                    request, endpoint.body, self.body_limit, optional=endpoint.body_optional
                )
            if endpoint.action_roles:
                _check_role(caller, endpoint.action_roles.get(getattr(body, "action", ""), required))
            call = ApiCall(self.context, request, caller, path, query, body, details)
            with within_entry(details):
                response = _response(await endpoint.handler(call), endpoint)
            status = response.status_code
            return response
        except Exception as error:
            problem = problem_of(error)
            if caller.queues and isinstance(error, NotFound):  # It may name other queues and schedules.
                problem = ApiProblem(404, "there is nothing of this name in the queues of your token")
            status = problem.status
            raise problem from error
        finally:
            self.context.answered[endpoint.name, status] += 1
            if endpoint.audit is not None:
                await self._write_audit(request, endpoint, caller, path, status, details)

    def _required_role(self, endpoint: Endpoint) -> Role:
        public = endpoint.path == "/metrics" and self.context.access.public_metrics
        return "open" if public else endpoint.role

    def _admit(self, request: Request, endpoint: Endpoint, caller: Caller, required: Role) -> None:
        """Check the caller's role, and that the request does not come from another site's page."""
        if caller.ambient or (required == "open" and endpoint.audit is not None):
            self._hosts.check(request)
            if endpoint.method != "GET":
                check_same_origin(request, caller)
        _check_role(caller, required)

    async def _write_audit(
        self,
        request: Request,
        endpoint: Endpoint,
        caller: Caller,
        path: dict[str, str],
        status: int,
        details: dict[str, Any],
    ) -> None:
        assert endpoint.audit is not None
        target = details.pop("target", None) or "/".join(path.values())
        who = details.pop("who", None) or caller.name
        said = details.pop("reason", "")
        client = request.scope.get("client")
        address = client[0] if client else ""
        entry = AuditLogEntry(
            who,
            caller.role,
            caller.how,
            endpoint.audit,
            target[:300],
            status,
            details,
            address,
            reason=_reason(request) or checked_reason(said),
        )
        if endpoint.counted and status < 300:
            self.context.audit.count(entry)
        else:
            await self.context.audit.write(entry)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _single_sign_on(settings: SingleSignOn) -> SingleSignOnLogin:
    try:
        from qbull.api.oidc_endpoints import SingleSignOnLogin
    except ModuleNotFoundError as error:
        raise ConfigError(f'single sign-on needs {error.name}; pip install "qbull[oidc]"') from None
    return SingleSignOnLogin(settings)


def _reason(request: Request) -> str:
    """Why somebody does it, as they say in a header; other characters than ASCII are percent-encoded."""
    return checked_reason(unquote(header(request, REASON_HEADER.lower().encode()) or ""))


def _check_role(caller: Caller, required: Role) -> None:
    if ROLE_RANK[caller.role] >= ROLE_RANK[required]:
        return
    if caller.role == "open":
        raise ApiProblem(401, "send Authorization: Bearer TOKEN, or log in")
    raise ApiProblem(403, f"{caller.name} has role {caller.role}; role {required} is required")


def _check_scope(endpoint: Endpoint, caller: Caller, path: Mapping[str, str]) -> None:
    """Refuse a caller whose token is for some queues, unless the endpoint knows how to keep to them."""
    match endpoint.scope:
        case "queue":
            check_queue(caller, path["queue"])
        case "app":
            raise ApiProblem(403, f"{caller.name} has a token for some queues; this concerns the whole app")
        case "queues" | "none":
            pass
        case _:
            assert_never(endpoint.scope)


class FastJsonResponse(Response):
    """A JSON response, cheaper to build than Starlette's general one: most answers are of this kind."""

    def __init__(
        self, content: bytes, status: int, headers: Mapping[str, str], kind: bytes = b"json"
    ) -> None:
        self.status_code = status
        self.body = content
        self.background = None
        self.raw_headers = [
            (b"content-length", b"%d" % len(content)),
            (b"content-type", b"application/" + kind),
        ]
        self.raw_headers += [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]


def _response(answer: Any, endpoint: Endpoint) -> Response:
    if isinstance(answer, Response):
        return answer
    reply = answer if isinstance(answer, Reply) else Reply(answer)
    response = FastJsonResponse(
        _encode(to_plain(reply.value)), reply.status or endpoint.status, reply.headers
    )
    if reply.cookie is not None:
        response.raw_headers.append((b"set-cookie", reply.cookie.encode("latin-1")))
    return response


def _problem(problem: ApiProblem, request: Request) -> Response:
    headers = dict(problem.headers)
    if problem.status == 401:
        # If the header names "Basic", a browser asks for a password itself; our page asks better.
        browser = "sec-fetch-mode" in request.headers
        headers["www-authenticate"] = 'Bearer realm="qbull"' + ("" if browser else ', Basic realm="qbull"')
    return FastJsonResponse(_encode(problem.body()), problem.status, headers, b"problem+json")
