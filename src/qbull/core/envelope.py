"""Envelopes: a payload or result that is compressed, signed or encrypted, and says so itself.

    byte 1      0, with which no JSON begins
    byte 2      what it is: z (compressed), s (signed), e (encrypted)
    the rest    its own; what comes out of it is JSON, or one more envelope

So a reader needs no settings to know what it has: old and new processes live side by side. Whoever has no key can still say
what a job has, and shows that instead of bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from typing import Any

from qbull.errors import PayloadError

COMPRESSED, SIGNED, ENCRYPTED = b"z", b"s", b"e"
LARGEST = 1 << 28
"""Bytes that a compressed one may become: whoever writes to the server must not fill a worker's memory with a few bytes."""

_MARK = b"\0"
_ID, _MAC = 4, 32


def wrap(kind: bytes, content: bytes) -> bytes:
    return _MARK + kind + content


def is_sealed(encoded: bytes) -> bool:
    return encoded[:1] == _MARK


def kind_of(sealed: bytes) -> bytes:
    return sealed[1:2]


def content_of(sealed: bytes) -> bytes:
    return sealed[2:]


def key_id(key: bytes) -> bytes:
    """What is said of a key beside what it was used for: enough to find it, nothing to guess it by."""
    return hashlib.sha256(b"qbull key id" + key).digest()[:_ID]


def key_named(content: bytes) -> tuple[str, bytes]:
    """The id of the key that signed or encrypted it, and the rest."""
    return content[:_ID].hex(), content[_ID:]


def compress(content: bytes, level: int) -> bytes:
    return wrap(COMPRESSED, len(content).to_bytes(4, "big") + zlib.compress(content, level))


def decompress(content: bytes, largest: int = LARGEST) -> bytes:
    length = int.from_bytes(content[:4], "big")
    if length > largest:
        raise PayloadError(f"would be {length:,} bytes, the limit is {largest:,}")
    try:
        plain = zlib.decompressobj().decompress(content[4:], max(length, 1))
    except zlib.error as error:
        raise PayloadError(f"cannot be decompressed: {error}") from None
    if len(plain) != length:
        raise PayloadError("cannot be decompressed: it is not whole")
    return plain


def sign(key: bytes, content: bytes, about: bytes) -> bytes:
    return wrap(SIGNED, key_id(key) + _mac(key, content, about) + content)


def signature_fits(key: bytes, signed: bytes, about: bytes) -> bool:
    """`signed` is what follows the key's id."""
    return hmac.compare_digest(_mac(key, signed[_MAC:], about), signed[:_MAC])


def signed_content(signed: bytes) -> bytes:
    return signed[_MAC:]


def shown(encoded: bytes) -> bytes | dict[str, Any]:
    """What of it can be shown to whoever has no key: the JSON, or what it is."""
    while is_sealed(encoded):
        content = content_of(encoded)
        match kind_of(encoded):
            case b"z":
                try:
                    encoded = decompress(content, 1 << 24)
                except PayloadError as error:
                    return {"compressed": str(error)}
            case b"s":
                encoded = signed_content(key_named(content)[1])
            case b"e":
                return {"encrypted": f"key {key_named(content)[0]}"}
            case _:
                return {"sealed": "by a newer qbull"}
    return encoded


def _mac(key: bytes, content: bytes, about: bytes) -> bytes:
    return hmac.digest(key, len(about).to_bytes(4, "big") + about + content, "sha256")
