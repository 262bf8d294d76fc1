"""Auth: identify the caller. A bearer token, basic auth for tools, or the session cookie of the dashboard.

The result of a token or session lookup is cached for two seconds, so that every process refuses a revoked one
that soon. Only hashes are compared, in constant time. Tokens from the environment need no lookup.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request

from qbull.api.headers import header
from qbull.api.problems import ApiProblem
from qbull.core.access import ROLES, Access, Role, TokenRole, in_scope
from qbull.errors import ServerError
from qbull.store.read.inspect import server_time
from qbull.store.store import Store
from qbull.store.verbs import sessions, tokens
from qbull.store.verbs.sessions import Session
from qbull.store.verbs.tokens import digest_of

T = TypeVar("T")

CALLER_CACHE_SECONDS = 2.0
"""How long the result of a lookup is cached."""
MAX_CACHED_CALLERS = 1000
MAX_ID_TOKEN_CHARS = 8_192
"""Longer ID tokens are not kept with their session."""
TOKEN_USE_INTERVAL_SECONDS = 60.0
"""The time of a token's last use is written at most this often."""
SESSION_COOKIE = "qbull_session"
SECURE_SESSION_COOKIE = "__Host-qbull_session"
"""Used with TLS: other hosts of the same domain cannot set it."""


class Caller(NamedTuple):
    """The sender of a request. `queues` is the scope of its token: empty if it may use all queues.

    `ambient`: a browser may have added the credentials by itself.
    """

    name: str
    role: Role
    how: Literal["token", "basic", "session", "nobody"]
    proof: str = ""
    token: str | None = None
    queues: tuple[str, ...] = ()

    def may_use(self, queue: str) -> bool:
        """Whether a queue is in the scope of this caller."""
        return in_scope(queue, self.queues)

    @property
    def ambient(self) -> bool:
        return self.how in ("basic", "session")


ANONYMOUS = Caller("nobody", "open", "nobody")
ROLE_RANK: dict[Role, int] = {role: rank for rank, role in enumerate(ROLES)}


class Authenticator:
    def __init__(self, store: Callable[[], Store], access: Access) -> None:
        self._store = store
        self._access = access
        self._password = None if access.password is None else digest_of(access.password)
        configured: list[tuple[TokenRole, str | None]] = [
            ("admin", access.admin_token),
            ("operator", access.operator_token),
            ("viewer", access.viewer_token),
        ]
        self._fixed = [
            (digest_of(token), Caller(f"QBULL_{role.upper()}_TOKEN", role, "token"))
            for role, token in configured
            if token is not None
        ]
        self._secrets = {caller.name: digest for digest, caller in self._fixed}
        if self._password is not None:
            self._secrets["admin"] = self._password
        self._known: dict[str, tuple[float, Caller]] = {}
        self._noted: dict[str, float] = {}

    async def caller(self, request: Request) -> Caller:
        """The caller; ANONYMOUS if the request has no credentials. Wrong credentials are always refused."""
        said = header(request, b"authorization")
        if said is not None:
            scheme, _, rest = said.partition(" ")
            kind = scheme.lower()
            if kind == "bearer":
                return await self._bearer(rest.strip())
            if kind == "basic":
                return await self._basic(rest.strip(), request)
            raise unknown("use Authorization: Bearer TOKEN")
        text = cookie_of(request)
        return ANONYMOUS if text is None else await self._session(text)

    async def log_in(
        self, request: Request, password: str | None, token: str | None, code: str | None = None
    ) -> tuple[str, Session]:
        """Start a session for somebody with the password, a token or the code of a login link.

        Returns the value of the cookie.
        """
        if token is not None:
            who = await self._bearer(token)
        elif code is not None:
            if "admin" not in self._secrets or not await sessions.use_login(self._store(), code):
                raise unknown("this login link was used or has expired; log in with the password")
            who = Caller("admin", "admin", "session")
        else:
            await self._try_password(request, "admin", password or "")
            who = Caller("admin", "admin", "session")
        assert who.role != "open"
        secret = self._secrets[who.name] if who.token is None else digest_of(who.proof)
        return await self._start_session(Session(who.name, who.role, 0, 0, who.token), secret)

    async def log_in_by_single_sign_on(self, name: str, role: TokenRole, id_token: str) -> str:
        """Start a session for somebody whom the provider knows; returns the cookie's value."""
        settings = self._access.single_sign_on
        assert settings is not None
        if name in self._secrets:  # The audit log must not take somebody for the owner of the password.
            name = f"{name} (single sign-on)"
        hint = id_token if len(id_token) <= MAX_ID_TOKEN_CHARS else ""
        session = Session(name, role, 0, 0, issuer=settings.issuer, id_token=hint)
        return (await self._start_session(session, settings.digest))[0]

    async def _start_session(self, session: Session, secret: str) -> tuple[str, Session]:
        now = int(await server_time(self._store()) * 1000)
        until = now + int(self._access.session_longest * 1000)
        session = msgspec.structs.replace(session, since_ms=now, until_ms=until)
        idle = self._access.session_idle
        return await sessions.create(self._store(), session, idle=idle, secret=secret), session

    async def log_out(self, text: str) -> Session | None:
        """End a session, and return it."""
        self._known.pop(f"s{text}", None)
        session = await sessions.find(self._store(), text, self._access.session_idle)
        await sessions.end(self._store(), text)
        return session

    async def log_all_out(self) -> int:
        self.forget()
        return await sessions.end_all(self._store())

    def forget(self) -> None:
        """Forget cached lookups after a revocation."""
        self._known.clear()

    async def still_valid(self, caller: Caller) -> bool:
        """Check a long connection's credentials again. If the server is unavailable, they stay valid."""
        try:
            if caller.how == "session":
                await self._session(caller.proof)
            elif caller.token is not None:
                await self._bearer(caller.proof)
        except ApiProblem:
            return False
        except ServerError:
            return True
        return True

    async def _bearer(self, text: str) -> Caller:
        digest = digest_of(text)
        found = [caller for known, caller in self._fixed if hmac.compare_digest(known, digest)]
        if found:
            return found[0]
        id = tokens.id_in(text)
        if id is None:
            raise unknown("this token is not known")
        return await self._remembered(f"t{digest}", partial(self._stored_token, id, text))

    async def _stored_token(self, id: str, text: str) -> tuple[Caller, float]:
        there = await tokens.find(self._store(), id)
        if there is None or not there.token.fits(text, there.now_ms):
            raise unknown("this token is not known, has expired, or was revoked")
        token, left = there.token, there.token.seconds_left(digest_of(text), there.now_ms)
        if time.monotonic() - self._noted.get(id, float("-inf")) > TOKEN_USE_INTERVAL_SECONDS:
            self._noted[id] = time.monotonic()
            await tokens.record_use(self._store(), id)
        caller = Caller(token.name, token.role, "token", text, id, token.queues)
        return caller, CALLER_CACHE_SECONDS if left is None else left

    async def _session(self, text: str) -> Caller:
        return await self._remembered(f"s{text}", partial(self._stored_session, text))

    async def _stored_session(self, text: str) -> tuple[Caller, float]:
        session = await sessions.find(self._store(), text, self._access.session_idle)
        if session is None:
            raise unknown("this session has ended; log in again")
        if session.token is None:
            secret = self._secret_of(session)
            if secret is None or not session.fits(text, secret):
                raise unknown("what this session was opened with has been changed; log in again")
            return Caller(session.name, session.role, "session", text), CALLER_CACHE_SECONDS
        there = await tokens.find(self._store(), session.token)
        valid = [] if there is None else there.token.valid_digests(there.now_ms)
        if there is None or not any(session.fits(text, digest) for digest in valid):
            await sessions.end(self._store(), text)
            raise unknown("the token that this session was opened with was revoked; log in again")
        token = there.token
        return Caller(token.name, token.role, "session", text, token.id, token.queues), CALLER_CACHE_SECONDS

    def _secret_of(self, session: Session) -> str | None:
        """The secret that a session without a token was opened with, as it is now."""
        if session.issuer is None:
            return self._secrets.get(session.name)
        settings = self._access.single_sign_on
        return None if settings is None else settings.digest

    async def _basic(self, text: str, request: Request) -> Caller:
        try:
            user, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise unknown("the header of the basic authentication cannot be read") from None
        if user != "admin" or tokens.id_in(password) is not None:
            return (await self._bearer(password))._replace(how="basic", proof=password)
        digest = digest_of(text)

        async def look() -> tuple[Caller, float]:
            await self._try_password(request, user, password)
            return Caller("admin", "admin", "basic"), CALLER_CACHE_SECONDS

        return await self._remembered(f"b{digest}", look)

    async def _try_password(self, request: Request, user: str, password: str) -> None:
        if self._password is None:
            raise unknown("no password is set on this server (QBULL_PASSWORD); use a token")
        address = address_of(request)
        is_right = hmac.compare_digest(self._password, digest_of(password))
        wait = await sessions.count_attempt(self._store(), address, is_right)
        if wait:
            raise ApiProblem(
                429, f"too many wrong passwords; try again in {wait} s", headers={"retry-after": str(wait)}
            )
        if not is_right:
            raise unknown("the password is wrong")
        await sessions.clear_attempts(self._store(), address)

    async def _remembered(self, name: str, look: Callable[[], Awaitable[tuple[Caller, float]]]) -> Caller:
        until, known = self._known.get(name, (0.0, ANONYMOUS))
        if time.monotonic() < until:
            return known
        self._known.pop(name, None)
        caller, lasts = await look()
        if len(self._known) >= MAX_CACHED_CALLERS:
            self._known.clear()
        self._known[name] = time.monotonic() + min(lasts, CALLER_CACHE_SECONDS), caller
        return caller


def unknown(why: str) -> ApiProblem:
    return ApiProblem(401, why)


def cookie_of(request: Request) -> str | None:
    return request.cookies.get(cookie_name(request)) if "cookie" in request.headers else None


def cookie_name(request: Request) -> str:
    secure = request.scope.get("scheme") == "https" and not request.scope.get("root_path")
    return SECURE_SESSION_COOKIE if secure else SESSION_COOKIE


def address_of(request: Request) -> str:
    """The source that login attempts are counted for: an address, or the network of an IPv6 address."""
    host = request.client.host if request.client is not None else "?"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6 and address.ipv4_mapped is not None:
        # A proxy that listens to both versions writes addresses of IPv4 like this.
        return str(address.ipv4_mapped)
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
