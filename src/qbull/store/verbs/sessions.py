"""Sessions of people who have logged in to the dashboard, and counts of failed logins.

A session is stored under the digest of its name, so that the stored data lets nobody in. It ends after its
idle time, and in any case at its expiry. Both are in Redis: they survive a restart of the API, and all its
processes share them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

import msgspec

from qbull.core.access import TokenRole
from qbull.store.read.inspect import server_time
from qbull.store.retry import idempotent
from qbull.store.store import Store

MAX_LOGIN_ATTEMPTS = 10
"""Failed logins from one address within LOGIN_WINDOW_SECONDS; then it must wait."""
MAX_TOTAL_LOGIN_ATTEMPTS = 300
"""Failed logins of all addresses within TOTAL_LOGIN_WINDOW_SECONDS. If there are more, many addresses guess
together, and each of them has MAX_LOGIN_ATTEMPTS_OF_MANY.
"""
MAX_LOGIN_ATTEMPTS_OF_MANY = 3
LOGIN_WINDOW_SECONDS = 300
TOTAL_LOGIN_WINDOW_SECONDS = 60
LOGIN_LINK_SECONDS = 600.0
"""How long the link of `qbull dev` lets somebody in, once."""
_LOGIN_LINK = "one-time login"
"""Stands for the secret of a session: its name is the code of a login link, and no cookie."""


class Session(msgspec.Struct, frozen=True):
    """A login. `until_ms` is its expiry on the server's clock."""

    name: str
    role: TokenRole
    since_ms: int
    until_ms: int
    token: str | None = None
    """The id of the token that it was opened with; it ends with the token's secret."""
    issuer: str | None = None
    """The provider at which somebody logged in by single sign-on; it ends with those settings."""
    proof: str = ""
    """Proof of the secret that it was opened with."""
    id_token: str = ""
    """The ID token of the log-in. It names the session that ends at the provider, and lets nobody in."""

    def fits(self, text: str, secret: str) -> bool:
        """Whether the session of this name was opened with this secret."""
        return hmac.compare_digest(self.proof, _proof(text, secret))


@idempotent
async def create(store: Store, who: Session, *, idle: float, secret: str | None = None) -> str:
    """Create a session; returns its name, 256 random bits."""
    text = secrets.token_urlsafe(32)
    if secret is not None:
        who = msgspec.structs.replace(who, proof=_proof(text, secret))
    await store.server.script(
        "session_start",
        store.names.app,
        _digest(text),
        who.until_ms,
        int(idle * 1000),
        msgspec.json.encode(who),
    )
    return text


@idempotent
async def find(store: Store, text: str, idle: float) -> Session | None:
    """Find a session that has not ended, and restart its idle time."""
    packed = await store.server.script("session_seen", store.names.app, _digest(text), int(idle * 1000))
    return None if packed is None else msgspec.json.decode(packed, type=Session)


async def offer_login(store: Store) -> str:
    """Let somebody log in as admin once, within LOGIN_LINK_SECONDS; returns the code, 256 random bits."""
    now_ms = int(await server_time(store) * 1000)
    link = Session("admin", "admin", now_ms, now_ms + int(LOGIN_LINK_SECONDS * 1000))
    return await create(store, link, idle=LOGIN_LINK_SECONDS, secret=_LOGIN_LINK)


async def use_login(store: Store, code: str) -> bool:
    """Use up a code; returns whether it was valid. Of two calls at once, one gets True."""
    link = await find(store, code, LOGIN_LINK_SECONDS)
    if link is None or not link.fits(code, _LOGIN_LINK):
        return False
    name = _digest(code)
    removed: int = await store.server.call("UNLINK", store.names.session(name))
    await store.server.call("ZREM", store.names.sessions, name)
    return removed == 1


@idempotent
async def end(store: Store, text: str) -> None:
    await _end(store, _digest(text))


@idempotent
async def end_all(store: Store) -> int:
    """End all sessions; returns how many there were."""
    names = await store.server.call("ZRANGE", store.names.sessions, 0, -1)
    for name in names:  # not all of them at once: somebody may log in meanwhile
        await _end(store, name.decode())
    return len(names)


async def _end(store: Store, name: str) -> None:
    await store.server.call("UNLINK", store.names.session(name))
    await store.server.call("ZREM", store.names.sessions, name)


@idempotent
async def count_attempt(store: Store, address: str, right: bool = False) -> int:
    """Count a login attempt; returns the seconds to wait before it may be answered, or 0.

    Addresses that guess are slowed down; the failed attempts of others never lock out an address. A correct
    password does not count: a tool that sends it with many concurrent requests does not guess.
    """
    bounds = (
        MAX_LOGIN_ATTEMPTS,
        LOGIN_WINDOW_SECONDS,
        MAX_TOTAL_LOGIN_ATTEMPTS,
        TOTAL_LOGIN_WINDOW_SECONDS,
        MAX_LOGIN_ATTEMPTS_OF_MANY,
    )
    wait: int = await store.server.script(
        "login_attempt", store.names.app, _digest(address), int(right), *bounds
    )
    return wait


@idempotent
async def clear_attempts(store: Store, address: str) -> None:
    """Clear the failed logins of an address after a correct password."""
    await store.server.script("login_forgive", store.names.app, _digest(address))


def _proof(text: str, secret: str) -> str:
    """Proof of a secret.

    Without the name of the session, which the server does not know, it reveals nothing.
    """
    return hmac.digest(text.encode("utf-8", "surrogatepass"), secret.encode(), "sha256").hex()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]
