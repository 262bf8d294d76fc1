"""Tokens of the REST API. Only the digest of a token is stored, so that the stored data gives no access.

A token is `qb_<id>_<secret>`: the id finds it, the secret has 256 random bits. The last use is recorded about
once a minute, and only for a token that exists.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

import msgspec

from qbull.core.access import TokenRole
from qbull.errors import Conflict, NotFound
from qbull.store.read.inspect import server_time
from qbull.store.retry import idempotent
from qbull.store.store import Store

MAX_TOKENS = 1000
"""Maximum number of tokens of an app."""
EXPIRED_TOKEN_RETENTION_SECONDS = 30 * 86_400
"""How long an expired token is still listed."""
TOKEN_PREFIX = "qb_"  # noqa: S105

_TOKEN_ID_CHARS = 10


class Token(msgspec.Struct, frozen=True):
    """The stored data of a token. Times are milliseconds on the server's clock."""

    id: str
    name: str
    role: TokenRole
    digest: str
    created_ms: int
    created_by: str = ""
    expires_ms: int | None = None
    used_ms: int | None = None

    def fits(self, text: str) -> bool:
        """Whether the text is this token, compared in constant time."""
        return hmac.compare_digest(self.digest, digest_of(text))


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def id_in(text: str) -> str | None:
    """The id in a text that looks like a token, or None."""
    mark, id, there = (
        text[: len(TOKEN_PREFIX)],
        text[len(TOKEN_PREFIX) : len(TOKEN_PREFIX) + _TOKEN_ID_CHARS],
        text[len(TOKEN_PREFIX) + _TOKEN_ID_CHARS :],
    )
    return (
        id
        if mark == TOKEN_PREFIX and len(id) == _TOKEN_ID_CHARS and there.startswith("_") and id.isalnum()
        else None
    )


async def create(
    store: Store, name: str, role: TokenRole, *, by: str, lasts: float | None = None
) -> tuple[Token, str]:
    """Create a token; returns it and its text, which cannot be read again later."""
    id = secrets.token_hex(_TOKEN_ID_CHARS // 2)
    text = f"{TOKEN_PREFIX}{id}_{secrets.token_urlsafe(32)}"
    token = Token(id, name, role, digest_of(text), created_ms=0, created_by=by)
    return await _write(store, token, lasts), text


@idempotent
async def _write(store: Store, token: Token, lasts: float | None) -> Token:
    now = int(await server_time(store) * 1000)
    expires = None if lasts is None else now + int(lasts * 1000)
    token = msgspec.structs.replace(token, created_ms=now, expires_ms=expires)
    await _sweep(store, now)
    if await store.server.call("HLEN", store.names.tokens) >= MAX_TOKENS:
        raise Conflict(f"there are {MAX_TOKENS:,} tokens already; revoke some")
    await store.server.script("register", store.names.tokens, token.id, msgspec.json.encode(token))
    return token


@idempotent
async def find(store: Store, id: str) -> tuple[Token, float | None] | None:
    """A token that has not expired, and the seconds until it does."""
    packed, now_ms = await _read(store, id)
    if not packed:
        return None
    token = msgspec.json.decode(packed, type=Token)
    if token.expires_ms is None:
        return token, None
    return (token, (token.expires_ms - now_ms) / 1000) if token.expires_ms > now_ms else None


@idempotent
async def list_all(store: Store) -> list[Token]:
    """All tokens, the newest first."""
    flat = await store.server.call("HGETALL", store.names.tokens)
    used = await store.server.call("HGETALL", store.names.tokens_used)
    when = {id: int(ms) for id, ms in zip(used[::2], used[1::2], strict=True)}
    tokens = [
        msgspec.structs.replace(msgspec.json.decode(packed, type=Token), used_ms=when.get(id))
        for id, packed in zip(flat[::2], flat[1::2], strict=True)
    ]
    return sorted(tokens, key=lambda token: -token.created_ms)


async def revoke(store: Store, id: str) -> None:
    packed, _ = await _read(store, id)
    if not packed:
        raise NotFound(f'no token "{id}"; "qbull token list" shows what there is')
    await _remove(store, id)


@idempotent
async def _read(store: Store, id: str) -> tuple[bytes, int]:
    """A token as it is stored, empty if there is none; and the server's time in milliseconds."""
    packed, now_ms = await store.server.script("token_find", store.names.app, id)
    return packed, now_ms


@idempotent
async def _remove(store: Store, id: str) -> None:
    await store.server.call("HDEL", store.names.tokens, id)
    await store.server.call("HDEL", store.names.tokens_used, id)


async def _sweep(store: Store, now_ms: int) -> None:
    """Remove tokens that expired long ago; done whenever a token is created."""
    for token in await list_all(store):
        if (
            token.expires_ms is not None
            and token.expires_ms < now_ms - EXPIRED_TOKEN_RETENTION_SECONDS * 1000
        ):
            await _remove(store, token.id)


@idempotent
async def record_use(store: Store, id: str) -> None:
    await store.server.script("token_used", store.names.app, id)
