"""Sessions of people who have logged in to the page, and wrong passwords, counted.

A session is kept under the digest of its name, so that what the server knows lets nobody in. It ends when it was not used
for its idle time, and in any case at its last moment. Both are in Redis: they outlive a restart of the API, and all of its
processes know them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

import msgspec

from qbull.core.access import TokenRole
from qbull.store.retry import idempotent
from qbull.store.store import Store

MAX_LOGIN_ATTEMPTS = 10
"""Wrong passwords from one address within TRIES_FOR seconds; then it has to wait."""
MAX_LOGIN_ATTEMPTS_TOTAL = 300
"""The same from all addresses together, within a minute: whoever guesses from many does not lock others out for longer."""
LOGIN_WINDOW_SECONDS = 300
TOTAL_LOGIN_WINDOW_SECONDS = 60


class Session(msgspec.Struct, frozen=True):
    """`until_ms` is its last moment on the server's clock."""

    name: str
    role: TokenRole
    since_ms: int
    until_ms: int
    token: str | None = None
    """The id of the token that it was opened with: it ends with that."""
    proof: str = ""
    """Of the secret that it was opened with, where that is no token of the server's."""

    def fits(self, text: str, secret: str) -> bool:
        """Whether the session of this name was opened with this secret."""
        return hmac.compare_digest(self.proof, _proof(text, secret))


@idempotent
async def create(store: Store, who: Session, *, idle: float, secret: str | None = None) -> str:
    """A new session; gives its name: 256 random bits."""
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
    """A session that has not ended. Its idle time begins anew."""
    packed = await store.server.script("session_seen", store.names.app, _digest(text), int(idle * 1000))
    return None if packed is None else msgspec.json.decode(packed, type=Session)


@idempotent
async def end(store: Store, text: str) -> None:
    await _end(store, _digest(text))


@idempotent
async def end_all(store: Store) -> int:
    """Everybody has to log in again."""
    names = await store.server.call("ZRANGE", store.names.sessions, 0, -1)
    for name in names:  # not all of them at once: somebody may log in meanwhile
        await _end(store, name.decode())
    return len(names)


async def _end(store: Store, name: str) -> None:
    await store.server.call("UNLINK", store.names.session(name))
    await store.server.call("ZREM", store.names.sessions, name)


@idempotent
async def count_attempt(store: Store, address: str, right: bool = False) -> int:
    """Somebody tries a password. The seconds that he has to wait for an answer, or 0 where he may have it.

    A right one does not count: a tool that sends it with many requests at once does not guess.
    """
    bounds = (MAX_LOGIN_ATTEMPTS, LOGIN_WINDOW_SECONDS, MAX_LOGIN_ATTEMPTS_TOTAL, TOTAL_LOGIN_WINDOW_SECONDS)
    wait: int = await store.server.script(
        "login_attempt", store.names.app, _digest(address), int(right), *bounds
    )
    return wait


@idempotent
async def clear_attempts(store: Store, address: str) -> None:
    """It was the right one: what that address had tried before is forgiven."""
    await store.server.script("login_forgive", store.names.app, _digest(address))


def _proof(text: str, secret: str) -> str:
    """Nobody can guess at a password with it who does not know the session's name, and the server does not."""
    return hmac.digest(text.encode("utf-8", "surrogatepass"), secret.encode(), "sha256").hex()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]
