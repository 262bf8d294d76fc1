"""Seals: middleware that changes how arguments and results lie on the server. Compressed, Signed, Encrypted.

`Seals` is what an app makes of those that it was given. Who calls: everything that writes a payload or a result, and
everything that reads one. What cannot be opened is a PayloadError of one line, and its job a dead letter that keeps its bytes.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Sequence
from typing import Literal

from qbull.core import envelope
from qbull.core.envelope import COMPRESSED_KIND, ENCRYPTED_KIND, SIGNED_KIND, key_id
from qbull.errors import ConfigError, PayloadError
from qbull.middleware import Middleware

CodecTarget = Literal["payload", "result"]

_KEY_BYTES, _SALT_BYTES = 32, 24


class Compressed(Middleware):
    """`Compressed(over=1024)`: arguments and results of more bytes are compressed, where that makes them smaller."""

    def __init__(self, *, over: int = 1024, level: int = 6) -> None:
        if over < 0:
            raise ConfigError(f"Compressed(over={over}): must not be negative")
        if not 1 <= level <= 9:
            raise ConfigError(f"Compressed(level={level}): give 1 (fast) to 9 (small)")
        self.over = over
        self.level = level

    def seal(self, content: bytes, about: bytes) -> bytes:
        """Any process of this release or a newer one can read it, whatever its settings are."""
        if len(content) <= self.over:
            return content
        smaller = envelope.compress(content, self.level)
        return smaller if len(smaller) < len(content) else content


class _KeyedCodec(Middleware):
    """The first key is used, all are accepted: so keys are changed without a pause."""

    def __init__(self, keys: Sequence[str | bytes], *, require: bool) -> None:
        if isinstance(keys, str | bytes) or not keys:
            raise ConfigError(f"{type(self).__name__}: give a list of keys, the one to use first")
        self.keys = {key_id(key).hex(): key for key in (self._key(given) for given in keys)}
        self.require = require
        self.first = next(iter(self.keys.values()))

    @staticmethod
    def new_key() -> str:
        """A new key, as text for an environment variable or a vault."""
        return base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode()

    def _key(self, given: str | bytes) -> bytes:
        name = type(self).__name__
        key = given
        if isinstance(given, str):
            try:
                key = base64.b64decode(given.strip().encode(), altchars=b"-_", validate=True)
            except ValueError:
                raise ConfigError(
                    f"{name}: a key is not base64; make one with qbull.{name}.new_key()"
                ) from None
        if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
            raise ConfigError(
                f"{name}: a key must have {_KEY_BYTES} bytes; make one with qbull.{name}.new_key()"
            )
        return key


class Signed(_KeyedCodec):
    """`Signed([key, older_key])`: a worker runs only what somebody with a key has enqueued, unchanged, for that task.

    With `require=False` jobs without a signature are run too, for the time until all producers sign.
    """

    def __init__(self, keys: Sequence[str | bytes], *, require: bool = True) -> None:
        super().__init__(keys, require=require)

    def seal(self, content: bytes, about: bytes) -> bytes:
        """Signed together with what it is for."""
        return envelope.sign(self.first, content, about)

    def open(self, content: bytes, about: bytes) -> bytes:
        """What was signed; PayloadError where it was not, or with another key."""
        id, signed = envelope.split_key_id(content)
        if id not in self.keys:
            raise PayloadError(f"is signed with key {id}, which is not among those of this app")
        if not envelope.is_signature_valid(self.keys[id], signed, about):
            raise PayloadError(f"does not fit its signature with key {id}: somebody has changed or moved it")
        return envelope.signed_content(signed)


class Encrypted(_KeyedCodec):
    """`Encrypted([key, older_key])`: arguments and results are encrypted (AES-256-GCM) on the server and in the outbox.

    With `require=True` a worker refuses what is not encrypted. Needs `pip install "qbull[encryption]"`.
    """

    def __init__(self, keys: Sequence[str | bytes], *, require: bool = False) -> None:
        super().__init__(keys, require=require)
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError:
            raise ConfigError('Encrypted needs cryptography; pip install "qbull[encryption]"') from None
        self._cipher = AESGCM
        self._wrong: type[Exception] = InvalidTag

    def seal(self, content: bytes, about: bytes) -> bytes:
        """A key of its own is derived for each: nonces of 12 bytes drawn at random for one key would run out of room."""
        salt = secrets.token_bytes(_SALT_BYTES)
        hidden = self._cipher(_derived_key(self.first, salt)).encrypt(bytes(12), content, about)
        return envelope.wrap(ENCRYPTED_KIND, key_id(self.first) + salt + hidden)

    def open(self, content: bytes, about: bytes) -> bytes:
        """What was encrypted; PayloadError where that was with another key, for something else, or was changed."""
        id, rest = envelope.split_key_id(content)
        if id not in self.keys:
            raise PayloadError(f"is encrypted with key {id}, which is not among those of this app")
        try:
            cipher = self._cipher(_derived_key(self.keys[id], rest[:_SALT_BYTES]))
            return cipher.decrypt(bytes(12), rest[_SALT_BYTES:], about)
        except (self._wrong, ValueError):
            raise PayloadError(
                f"cannot be decrypted with key {id}: somebody has changed or moved it"
            ) from None


Codec = Compressed | Signed | Encrypted


class CodecChain:
    """Those of one app, in the order in which they are put on. They come off in the order that the bytes say."""

    def __init__(self, middleware: Sequence[Middleware] = ()) -> None:
        self._seals = [each for each in middleware if isinstance(each, Compressed | Signed | Encrypted)]
        kinds = [type(each) for each in self._seals]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise ConfigError(f"middleware: {kind.__name__} is there twice; give it all its keys once")
        if Encrypted in kinds and Compressed in kinds and kinds.index(Compressed) > kinds.index(Encrypted):
            raise ConfigError(
                "middleware: what is encrypted cannot be compressed; put Compressed before Encrypted"
            )
        self._by_kind: dict[bytes, Signed | Encrypted] = {
            SIGNED_KIND if isinstance(each, Signed) else ENCRYPTED_KIND: each
            for each in self._seals
            if not isinstance(each, Compressed)
        }
        self._required = {kind for kind, each in self._by_kind.items() if each.require}
        self.used = bool(self._seals)

    def seal(self, what: CodecTarget, queue: str, task: str, content: bytes) -> bytes:
        about = _binding(what, queue, task)
        for each in self._seals:
            content = each.seal(content, about)
        return content

    def open(self, what: CodecTarget, queue: str, task: str, sealed: bytes) -> bytes:
        about = _binding(what, queue, task)
        seen: set[bytes] = set()
        try:
            while envelope.is_wrapped(sealed):
                kind = envelope.kind_of(sealed)
                seen.add(kind)
                sealed = self._open_one(kind, envelope.content_of(sealed), about)
        except PayloadError as error:
            raise PayloadError(f'task "{task}": its {what} {error}') from None
        if not self._required <= seen and what == "payload":
            lacks = "signed" if SIGNED_KIND in self._required - seen else "encrypted"
            name = lacks.capitalize()
            raise PayloadError(
                f'task "{task}": its {what} is not {lacks}, and this app requires it; '
                f"enqueue it from an app with the key, or give {name}(…, require=False)"
            )
        return sealed

    def _open_one(self, kind: bytes, content: bytes, about: bytes) -> bytes:
        if kind == COMPRESSED_KIND:
            return envelope.decompress(content)
        opener = self._by_kind.get(kind)
        if opener is not None:
            return opener.open(content, about)
        id, rest = envelope.split_key_id(content)
        if kind == SIGNED_KIND:
            return envelope.signed_content(rest)
        if kind == ENCRYPTED_KIND:
            raise PayloadError(
                f"is encrypted with key {id}, and this app has no keys; give it middleware=[qbull.Encrypted(…)]"
            )
        raise PayloadError("was sealed by a newer qbull; upgrade this one")


def _binding(what: CodecTarget, queue: str, task: str) -> bytes:
    """What it is bound to: it cannot be passed off as that of another queue or task."""
    return b"\0".join((what.encode(), queue.encode(), task.encode()))


def _derived_key(key: bytes, salt: bytes) -> bytes:
    return hmac.digest(key, b"qbull encrypted" + salt, "sha256")
