"""Log-in at an OpenID Connect provider: send a browser there, and take it back with a session.

Browsers visit these addresses; they are not part of the REST API's table. A cookie ties a log-in to the
browser that started it. It has the state, the nonce and the verifier (PKCE), so that a code which was
started or stolen elsewhere is worthless here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from qbull.api.auth import address_of, cookie_name
from qbull.api.auth_endpoints import session_cookie
from qbull.api.endpoint import ApiCall, Endpoint
from qbull.api.oidc import OidcProvider
from qbull.api.problems import ApiProblem
from qbull.core.single_sign_on import CALLBACK_PATH, SingleSignOn
from qbull.store.verbs import sessions

log = logging.getLogger("qbull.api")

LOGIN_PATH = "/api/oidc/login"
LOGIN_COOKIE = "qbull_login"
SECURE_LOGIN_COOKIE = "__Host-qbull_login"
LOGIN_SECONDS = 600
"""How long somebody may take at the provider."""
MAX_VIEW_CHARS = 500

_VIEW_PATTERN = re.compile(r"/ui/[A-Za-z0-9._~%/?&=+:@,;!$'()*-]*")
"""Addresses of the dashboard."""
_ERROR_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,50}")


class StartedLogin(msgspec.Struct, frozen=True):
    """A log-in that is under way in a browser; the content of its cookie."""

    state: str
    nonce: str
    verifier: str
    view: str

    @classmethod
    def start(cls, view: str) -> StartedLogin:
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48), view)

    @property
    def challenge(self) -> str:
        """The verifier as the provider learns it before the code is exchanged (S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def cookie(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).rstrip(b"=").decode()

    @classmethod
    def of(cls, request: Request) -> StartedLogin:
        text = request.cookies.get(_cookie_name(request), "")
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.MsgspecError):
            raise ApiProblem(
                400, "no log-in is under way in this browser, or it took too long; log in again"
            ) from None


class SingleSignOnLogin:
    """The two addresses of a log-in, for one provider."""

    def __init__(self, settings: SingleSignOn) -> None:
        self._settings = settings
        self._provider = OidcProvider(settings)

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path=LOGIN_PATH,
                role="open",
                scope="none",
                summary="Go to the provider of single sign-on",
                handler=self.start,
                query=ViewQuery,
                answer=str,
                status=303,
            ),
            Endpoint(
                method="GET",
                path=CALLBACK_PATH,
                role="open",
                scope="none",
                summary="Come back from the provider of single sign-on",
                handler=self.finish,
                query=CallbackQuery,
                answer=str,
                status=303,
                audit="log in",
            ),
        ]

    async def start(self, call: ApiCall[ViewQuery, Any]) -> Response:
        """Send the browser to the provider."""
        settings, login = self._settings, StartedLogin.start(_checked_view(call.query.view))
        provider = await self._provider.metadata()
        question = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": settings.redirect_uri,
            "scope": " ".join(settings.scopes),
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": login.challenge,
            "code_challenge_method": "S256",
        }
        mark = "&" if "?" in provider.authorization_endpoint else "?"
        response = RedirectResponse(f"{provider.authorization_endpoint}{mark}{urlencode(question)}", 303)
        _set_cookie(response, _login_cookie(call.request, login.cookie(), LOGIN_SECONDS))
        return response

    async def finish(self, call: ApiCall[CallbackQuery, Any]) -> Response:
        """Check what the browser brings back, and start a session."""
        request, told, settings = call.request, call.query, self._settings
        login = StartedLogin.of(request)
        view = _checked_view(login.view)  # A neighbour of this host's domain could have planted the cookie.
        if not hmac.compare_digest(login.state.encode(), told.state.encode()):
            raise ApiProblem(400, "this is the answer to another log-in; log in again")
        if told.iss is not None and told.iss != settings.issuer:
            raise ApiProblem(400, "this answer comes from another provider; log in again")
        if told.error is not None or not told.code:
            word = told.error if told.error and _ERROR_PATTERN.fullmatch(told.error) else "no code"
            raise ApiProblem(401, f"the provider of single sign-on refused the log-in: {word}")
        token, claims = await self._claims(call, told.code, login)
        name, role = settings.name_of(claims), settings.role_of(claims)
        call.audit_details.update(who=name, subject=str(claims["sub"])[:200], issuer=settings.issuer)
        if role is None:
            raise ApiProblem(
                403, f'{name} has no role here: no value of the claim "{settings.role_claim}" gives one'
            )
        text = await call.context.auth.log_in_by_single_sign_on(name, role, token)
        response = RedirectResponse(settings.public_url.rstrip("/") + view, 303)
        _set_cookie(response, session_cookie(request, text, int(call.context.access.session_longest)))
        _set_cookie(response, _login_cookie(request, "", 0))
        return response

    async def logout_address(self, id_token: str) -> str | None:
        """Where a browser ends its session at the provider; None if it offers no such address.

        The session here has ended: a provider that cannot be asked must not fail the log-out.
        """
        try:
            address = (await self._provider.metadata()).end_session_endpoint
        except ApiProblem as problem:
            log.warning("single sign-on: the session at the provider goes on: %s", problem)
            return None
        if address is None:
            return None
        question = {"client_id": self._settings.client_id}
        question["post_logout_redirect_uri"] = self._settings.public_url.rstrip("/") + "/ui/"
        if id_token:
            question["id_token_hint"] = id_token
        return f"{address}{'&' if '?' in address else '?'}{urlencode(question)}"

    async def _claims(self, call: ApiCall[Any, Any], code: str, login: StartedLogin) -> tuple[str, Any]:
        """The ID token and its claims. Wrong codes are counted like wrong passwords."""
        store, address = call.context.store, address_of(call.request)
        wait = await sessions.count_attempt(store, address, right=True)
        if wait:
            raise ApiProblem(
                429, f"too many failed log-ins; try again in {wait} s", headers={"retry-after": str(wait)}
            )
        try:
            return await self._provider.claims(code, login.verifier, login.nonce)
        except ApiProblem as problem:
            if problem.status == 401:
                await sessions.count_attempt(store, address)
            raise


class ViewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The view of the dashboard to return to."""

    view: str = "/ui/"


class CallbackQuery(msgspec.Struct, frozen=True):
    """The provider's answer. Providers add parameters of their own, which do not matter."""

    state: str = ""
    code: str | None = None
    error: str | None = None
    iss: str | None = None


def _checked_view(view: str) -> str:
    """A view of the dashboard. Anything else would make this server send people elsewhere."""
    path = view.partition("?")[0]
    if len(view) > MAX_VIEW_CHARS or not _VIEW_PATTERN.fullmatch(view) or "//" in path or ".." in path:
        raise ApiProblem(400, "query: view: give an address of the dashboard, for example /ui/queues")
    return view


def _cookie_name(request: Request) -> str:
    return SECURE_LOGIN_COOKIE if cookie_name(request).startswith("__Host-") else LOGIN_COOKIE


def _login_cookie(request: Request, text: str, seconds: int) -> str:
    """A cookie that comes back from another site: SameSite is Lax, unlike that of sessions."""
    name = _cookie_name(request)
    root = request.scope.get("root_path", "")
    place = "/" if name == SECURE_LOGIN_COOKIE else f"{root}{CALLBACK_PATH}"
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    return f"{name}={text}; Path={place}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


def _set_cookie(response: Response, cookie: str) -> None:
    response.raw_headers.append((b"set-cookie", cookie.encode("latin-1")))
