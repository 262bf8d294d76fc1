"""Wrapped payloads: payloads and results that a codec has compressed, signed or encrypted.

    byte 1      0, with which no JSON starts
    byte 2      the codec: z (compressed), S (signed), E (encrypted); s and e, which an earlier build
                wrote, are signed and encrypted without a binding to the job; O (arguments that are stored
                elsewhere, as the other codecs have made them)
    the rest    its content: JSON, or one more wrapped payload; for O the size in eight bytes, and the name

A reader recognises a wrapped payload without any settings, so old and new processes work side by side. A
reader without the key can still show the name of the codec instead of the bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from typing import Any

from qbull.errors import PayloadError

COMPRESSED_KIND, SIGNED_KIND, ENCRYPTED_KIND, OFFLOADED_KIND = b"z", b"S", b"E", b"O"
EARLIER_KINDS = {b"s": SIGNED_KIND, b"e": ENCRYPTED_KIND}
"""Kinds that an earlier build wrote, and those of today."""
MAX_LAYERS = 3
"""An app can compress, encrypt and sign a value, each once."""
DECOMPRESSED_LIMIT_BYTES = 1 << 28
"""The largest content: a few compressed bytes on the server must not fill a worker's memory."""

_CODEC_MARK = b"\0"
_KEY_ID_BYTES, _MAC_BYTES = 4, 32


def wrap(kind: bytes, content: bytes) -> bytes:
    return _CODEC_MARK + kind + content


def is_wrapped(encoded: bytes) -> bool:
    return encoded[:1] == _CODEC_MARK


def wrap_offloaded(name: str, size: int) -> bytes:
    """The payload of a job whose arguments are stored elsewhere."""
    return wrap(OFFLOADED_KIND, size.to_bytes(8, "big") + name.encode())


def is_offloaded(encoded: bytes) -> bool:
    return encoded[:2] == _CODEC_MARK + OFFLOADED_KIND


def offloaded_name(content: bytes) -> str:
    """The name of arguments that are stored elsewhere."""
    return content[8:].decode("utf-8", "replace")


def kind_of(wrapped: bytes) -> bytes:
    return wrapped[1:2]


def content_of(wrapped: bytes) -> bytes:
    return wrapped[2:]


def key_id(key: bytes) -> bytes:
    """The id of a key, stored beside the content: enough to find the key, useless for guessing it."""
    return hashlib.sha256(b"qbull key id" + key).digest()[:_KEY_ID_BYTES]


def split_key_id(content: bytes) -> tuple[str, bytes]:
    """The id of the key that signed or encrypted it, and the rest."""
    return content[:_KEY_ID_BYTES].hex(), content[_KEY_ID_BYTES:]


def compress(content: bytes, level: int) -> bytes:
    return wrap(COMPRESSED_KIND, len(content).to_bytes(4, "big") + zlib.compress(content, level))


def decompress(content: bytes, largest: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    length = int.from_bytes(content[:4], "big")
    if length > largest:
        raise PayloadError(f"would be {length:,} bytes, the limit is {largest:,}")
    try:
        plain = zlib.decompressobj().decompress(content[4:], max(length, 1))
    except zlib.error as error:
        raise PayloadError(f"cannot be decompressed: {error}") from None
    if len(plain) != length:
        raise PayloadError("cannot be decompressed: it is incomplete")
    return plain


def sign(key: bytes, content: bytes, about: bytes) -> bytes:
    return wrap(SIGNED_KIND, key_id(key) + _mac(key, content, about) + content)


def is_signature_valid(key: bytes, signed: bytes, about: bytes) -> bool:
    """Check the bytes that follow the key's id."""
    return hmac.compare_digest(_mac(key, signed[_MAC_BYTES:], about), signed[:_MAC_BYTES])


def signed_content(signed: bytes) -> bytes:
    return signed[_MAC_BYTES:]


def visible_kinds(encoded: bytes) -> set[bytes]:
    """The codecs of a payload, as far as they show without a key."""
    kinds: set[bytes] = set()
    while is_wrapped(encoded) and len(kinds) < MAX_LAYERS:
        kind, content = EARLIER_KINDS.get(kind_of(encoded), kind_of(encoded)), content_of(encoded)
        if kind in kinds:
            break
        kinds.add(kind)
        match kind:
            case b"z":
                encoded = decompress(content)
            case b"S":
                encoded = signed_content(split_key_id(content)[1])
            case _:
                break
    return kinds


def displayable(encoded: bytes) -> bytes | dict[str, Any]:
    """The JSON if it can be read without a key; otherwise the name of the codec and of its key."""
    for _ in range(MAX_LAYERS):
        if not is_wrapped(encoded):
            return encoded
        content = content_of(encoded)
        match kind_of(encoded):
            case b"z":
                try:
                    encoded = decompress(content, 1 << 24)
                except PayloadError as error:
                    return {"compressed": str(error)}
            case b"s" | b"S":
                encoded = signed_content(split_key_id(content)[1])
            case b"O":
                return {"stored": offloaded_name(content), "bytes": int.from_bytes(content[:8], "big")}
            case b"e" | b"E":
                return {"encrypted": f"key {split_key_id(content)[0]}"}
            case _:
                return {"encoded": "by a newer qbull"}
    return {"encoded": "too often; no qbull writes that"} if is_wrapped(encoded) else encoded


def _mac(key: bytes, content: bytes, about: bytes) -> bytes:
    return hmac.digest(key, len(about).to_bytes(4, "big") + about + content, "sha256")
