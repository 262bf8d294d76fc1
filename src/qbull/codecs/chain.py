"""CodecChain: the codecs of an app, applied to every payload, result and schedule that is written or read.

`protect` and `open` are the only way to a stored value: a process that stores a value of a job calls the one,
and a process that reads it calls the other with the same context. A value that cannot be opened raises a
PayloadError of one line. Its job becomes a dead letter that keeps the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qbull.codecs.compress import Compressed
from qbull.codecs.context import Purpose, ValueContext
from qbull.codecs.encrypt import Encrypted
from qbull.codecs.sign import Signed
from qbull.core import wrapped_payload
from qbull.core.wrapped_payload import (
    COMPRESSED_KIND,
    EARLIER_KINDS,
    ENCRYPTED_KIND,
    OFFLOADED_KIND,
    SIGNED_KIND,
)
from qbull.errors import ConfigError, PayloadError
from qbull.middleware import Middleware

_REMEDIES: dict[Purpose, str] = {
    "payload": "enqueue it from an app with the key",
    "unique payload": "enqueue it from an app with the key",
    "result": "give its worker the key",
    "schedule": "write it again from an app with the key",
    "step": "give its worker the key",
    "signal": "send it from an app with the key",
    "stream value": "give its worker the key",
    "published value": "give its worker the key",
}


class ArgumentsElsewhere(PayloadError):
    """The arguments of a job are stored elsewhere, under this name."""

    def __init__(self, context: ValueContext, name: str) -> None:
        super().__init__(
            f'{context.shown} is stored elsewhere, as "{name}"; '
            "give this app the same arguments=… that its producer has"
        )
        self.name = name


class OpenedValue(NamedTuple):
    """A value that was opened.

    Attributes:
        content: The value.
        keys: The ids of the keys that signed and encrypted it, by the kind of codec.
    """

    content: bytes
    keys: dict[bytes, str]


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
        self._first_keys = {kind: each.first_id for kind, each in self._by_kind.items()}
        self.used = bool(self._codecs)
        self.has_keys = bool(self._by_kind)
        self.requires = bool(self._required)

    def refuse_weaker(self, context: ValueContext, stored: bytes) -> None:
        """Raise PayloadError if this app cannot sign or encrypt a value again as it is stored."""
        for kind, done in ((SIGNED_KIND, "signed"), (ENCRYPTED_KIND, "encrypted")):
            if kind in wrapped_payload.visible_kinds(stored) and kind not in self._by_kind:
                raise PayloadError(f"{context.shown} is {done}, and this app has no key; use one that has it")

    def protect(self, context: ValueContext, content: bytes) -> bytes:
        """The bytes to store for a value of this context."""
        if not self._codecs:
            return content
        binding = context.binding()
        for each in self._codecs:
            content = each.encode(content, binding)
        return content

    def open(self, context: ValueContext, stored: bytes) -> bytes:
        """The value in these bytes. Raises PayloadError if this app cannot read it, or must not."""
        return self.open_with_keys(context, stored).content

    def open_with_keys(self, context: ValueContext, stored: bytes) -> OpenedValue:
        """The value in these bytes, and the keys that protect it. Raises PayloadError as `open` does."""
        keys: dict[bytes, str] = {}
        content, is_compressed = stored, False
        try:
            while wrapped_payload.is_wrapped(content):
                kind, inner = wrapped_payload.kind_of(content), wrapped_payload.content_of(content)
                # Each codec once: nested layers must not cost more than the layers that an app can write.
                if kind in keys or (kind == COMPRESSED_KIND and is_compressed):
                    raise PayloadError("is encoded twice by the same codec; no qbull writes that")
                if kind == OFFLOADED_KIND:
                    raise ArgumentsElsewhere(context, wrapped_payload.offloaded_name(inner))
                if kind == COMPRESSED_KIND:
                    content, is_compressed = wrapped_payload.decompress(inner), True
                else:
                    content = self._decode_one(kind, inner, context)
                    keys[kind] = wrapped_payload.split_key_id(inner)[0]
        except ArgumentsElsewhere:
            raise
        except PayloadError as error:
            raise PayloadError(f"{context.shown} {error}") from None
        if not self._required <= keys.keys():
            raise self._missing(context, keys)
        return OpenedValue(content, keys)

    def protects_like(self, opened: OpenedValue) -> bool:
        """Whether this app would protect the value in the same way: with the same codecs and keys."""
        return opened.keys == self._first_keys

    def _missing(self, context: ValueContext, keys: dict[bytes, str]) -> PayloadError:
        kind = SIGNED_KIND if SIGNED_KIND in self._required - keys.keys() else ENCRYPTED_KIND
        word = "signed" if kind == SIGNED_KIND else "encrypted"
        remedy = f"or give {word.capitalize()}(…, require=False)"
        if any(EARLIER_KINDS.get(earlier) == kind for earlier in keys):
            return PayloadError(
                f"{context.shown} is {word} as an earlier qbull did, which does not bind it to its job, "
                f"and this app requires that; {_REMEDIES[context.purpose]}, {remedy} "
                "until such values are gone"
            )
        return PayloadError(
            f"{context.shown} is not {word}, and this app requires it; {_REMEDIES[context.purpose]}, {remedy}"
        )

    def _decode_one(self, kind: bytes, content: bytes, context: ValueContext) -> bytes:
        current = EARLIER_KINDS.get(kind, kind)
        codec = self._by_kind.get(current)
        if codec is not None:
            binding = context.binding() if kind == current else context.earlier_binding()
            return codec.decode(content, binding)
        id, rest = wrapped_payload.split_key_id(content)
        if current == SIGNED_KIND:
            return wrapped_payload.signed_content(rest)
        if current == ENCRYPTED_KIND:
            raise PayloadError(
                f"is encrypted with key {id}, and this app has no keys; "
                "give it middleware=[qbull.Encrypted(…)]"
            )
        raise PayloadError("was encoded by a newer qbull; upgrade this one")
