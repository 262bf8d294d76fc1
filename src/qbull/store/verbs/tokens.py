"""Tokens of the REST API. Only the digest of a token is stored, so that the stored data gives no access.

A token is `qb_<id>_<secret>`: the id finds it, the secret has 256 random bits. Rotation gives it a new
secret; the one before stays valid for a while, so that programs can change over. The last use is recorded
about once a minute, and only for a token that exists.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any, NamedTuple

import msgspec

from qbull.core.access import TokenRole
from qbull.core.record import to_datetime
from qbull.errors import Conflict, NotFound
from qbull.store.audit import note
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
    """The stored data of a token. Times are milliseconds on the server's clock.

    `queues` is its scope: names and patterns, empty for all queues. `earlier_digest` is that of the secret
    before the last rotation, valid until `earlier_until_ms`.
    """

    id: str
    name: str
    role: TokenRole
    digest: str
    created_ms: int
    created_by: str = ""
    expires_ms: int | None = None
    used_ms: int | None = None
    queues: tuple[str, ...] = ()
    rotated_ms: int | None = None
    earlier_digest: str = ""
    earlier_until_ms: int = 0

    def valid_digests(self, now_ms: int) -> list[str]:
        """The digests of the secrets that are valid now."""
        return [self.digest, self.earlier_digest] if now_ms < self.earlier_until_ms else [self.digest]

    def fits(self, text: str, now_ms: int) -> bool:
        """Whether the text is this token, compared in constant time."""
        return any(hmac.compare_digest(known, digest_of(text)) for known in self.valid_digests(now_ms))

    def seconds_left(self, digest: str, now_ms: int) -> float | None:
        """Seconds until a valid secret expires; None if it does not."""
        ends = [self.expires_ms] if self.expires_ms is not None else []
        if not hmac.compare_digest(self.digest, digest):
            ends.append(self.earlier_until_ms)
        return (min(ends) - now_ms) / 1000 if ends else None


class FoundToken(NamedTuple):
    """A token that has not expired, and the server's time in milliseconds."""

    token: Token
    now_ms: int


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
    store: Store,
    name: str,
    role: TokenRole,
    *,
    by: str,
    lasts: float | None = None,
    queues: tuple[str, ...] = (),
) -> tuple[Token, str]:
    """Create a token; returns it and its text, which cannot be read again later."""
    id = secrets.token_hex(_TOKEN_ID_CHARS // 2)
    text = _new_text(id)
    token = Token(id, name, role, digest_of(text), created_ms=0, created_by=by, queues=queues)
    written = await _write(store, token, lasts)
    note(token=id, after=_facts(written))
    return written, text


async def rotate(
    store: Store, id: str, *, overlap: float = 0.0, lasts: float | None = None
) -> tuple[Token, str]:
    """Give a token a new secret; returns the token and its new text.

    Args:
        store: the store.
        id: the token.
        overlap: seconds for which the present secret stays valid.
        lasts: seconds until the token expires; by default as long as it was valid before.
    """
    before, now = await _read(store, id)
    if not before:
        raise _unknown(id)
    token = msgspec.json.decode(before, type=Token)
    if lasts is None and token.expires_ms is not None:
        lasts = (token.expires_ms - (token.rotated_ms or token.created_ms)) / 1000
    text = _new_text(id)
    rotated = msgspec.structs.replace(
        token,
        digest=digest_of(text),
        rotated_ms=now,
        expires_ms=None if lasts is None else now + int(lasts * 1000),
        earlier_digest=token.digest if overlap else "",
        earlier_until_ms=now + int(overlap * 1000) if overlap else 0,
    )
    await _swap(store, id, before, msgspec.json.encode(rotated))
    note(before=_facts(token), after=_facts(rotated))
    return rotated, text


@idempotent
async def _swap(store: Store, id: str, before: bytes, after: bytes) -> None:
    if not await store.server.script("token_swap", store.names.app, id, before, after):
        raise Conflict(f'token "{id}": somebody else has changed it at the same time; try again')


def _new_text(id: str) -> str:
    return f"{TOKEN_PREFIX}{id}_{secrets.token_urlsafe(32)}"


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
async def find(store: Store, id: str) -> FoundToken | None:
    """A token that has not expired."""
    packed, now_ms = await _read(store, id)
    if not packed:
        return None
    token = msgspec.json.decode(packed, type=Token)
    expired = token.expires_ms is not None and token.expires_ms <= now_ms
    return None if expired else FoundToken(token, now_ms)


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
        raise _unknown(id)
    await _remove(store, id)
    note(before=_facts(msgspec.json.decode(packed, type=Token)), after=None)


def _facts(token: Token) -> dict[str, Any]:
    """A token for the audit log."""
    expires = None if token.expires_ms is None else to_datetime(token.expires_ms)
    return {"name": token.name, "role": token.role, "queues": token.queues, "expires": expires}


def _unknown(id: str) -> NotFound:
    return NotFound(f'no token "{id}"; "qbull token list" shows what there is')


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
