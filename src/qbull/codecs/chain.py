"""CodecChain: the codecs of an app, applied to every payload and result that is written or read.

A payload that cannot be decoded raises a PayloadError of one line. Its job becomes a dead letter that keeps
the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from qbull.codecs.compress import Compressed
from qbull.codecs.encrypt import Encrypted
from qbull.codecs.sign import Signed
from qbull.core import wrapped_payload
from qbull.core.wrapped_payload import COMPRESSED_KIND, ENCRYPTED_KIND, SIGNED_KIND
from qbull.errors import ConfigError, PayloadError
from qbull.middleware import Middleware

CodecTarget = Literal["payload", "result"]


class CodecChain:
    """Encodes in the order of the app's codecs, and decodes in the order that the bytes show."""

    def __init__(self, middleware: Sequence[Middleware] = ()) -> None:
        self._codecs = [each for each in middleware if isinstance(each, Compressed | Signed | Encrypted)]
        kinds = [type(each) for each in self._codecs]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise ConfigError(f"middleware: {kind.__name__} is there twice; give it all its keys once")
        if Encrypted in kinds and Compressed in kinds and kinds.index(Compressed) > kinds.index(Encrypted):
            raise ConfigError(
                "middleware: what is encrypted cannot be compressed; put Compressed before Encrypted"
            )
        self._by_kind: dict[bytes, Signed | Encrypted] = {
            SIGNED_KIND if isinstance(each, Signed) else ENCRYPTED_KIND: each
            for each in self._codecs
            if not isinstance(each, Compressed)
        }
        self._required = {kind for kind, each in self._by_kind.items() if each.require}
        self.used = bool(self._codecs)

    def encode(self, target: CodecTarget, queue: str, task: str, content: bytes) -> bytes:
        """The bytes to store for a payload or result of this task."""
        binding = _binding(target, queue, task)
        for each in self._codecs:
            content = each.encode(content, binding)
        return content

    def decode(self, target: CodecTarget, queue: str, task: str, encoded: bytes) -> bytes:
        """The payload or result in these bytes.

        Raises PayloadError if this app cannot read them, or must not.
        """
        binding = _binding(target, queue, task)
        seen: set[bytes] = set()
        try:
            while wrapped_payload.is_wrapped(encoded):
                kind = wrapped_payload.kind_of(encoded)
                seen.add(kind)
                encoded = self._decode_one(kind, wrapped_payload.content_of(encoded), binding)
        except PayloadError as error:
            raise PayloadError(f'task "{task}": its {target} {error}') from None
        if not self._required <= seen and target == "payload":
            lacks = "signed" if SIGNED_KIND in self._required - seen else "encrypted"
            name = lacks.capitalize()
            raise PayloadError(
                f'task "{task}": its {target} is not {lacks}, and this app requires it; '
                f"enqueue it from an app with the key, or give {name}(…, require=False)"
            )
        return encoded

    def _decode_one(self, kind: bytes, content: bytes, binding: bytes) -> bytes:
        if kind == COMPRESSED_KIND:
            return wrapped_payload.decompress(content)
        codec = self._by_kind.get(kind)
        if codec is not None:
            return codec.decode(content, binding)
        id, rest = wrapped_payload.split_key_id(content)
        if kind == SIGNED_KIND:
            return wrapped_payload.signed_content(rest)
        if kind == ENCRYPTED_KIND:
            raise PayloadError(
                f"is encrypted with key {id}, and this app has no keys; "
                "give it middleware=[qbull.Encrypted(…)]"
            )
        raise PayloadError("was encoded by a newer qbull; upgrade this one")


def _binding(target: CodecTarget, queue: str, task: str) -> bytes:
    """The context of a payload or result: it cannot be passed off as that of another queue or task."""
    return b"\0".join((target.encode(), queue.encode(), task.encode()))
