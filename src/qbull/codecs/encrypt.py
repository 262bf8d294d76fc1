"""Encrypted: middleware that encrypts arguments, results and the arguments of schedules."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence

from qbull.codecs.keys import KeyedCodec
from qbull.core import wrapped_payload
from qbull.core.wrapped_payload import ENCRYPTED_KIND, key_id
from qbull.errors import ConfigError, PayloadError

_SALT_BYTES = 24


class Encrypted(KeyedCodec):
    """Encrypts arguments and results on the server and in the outbox: `Encrypted([key, older_key])`.

    The arguments of schedules are encrypted too. The cipher is AES-256-GCM. Needs `pip install
    "qbull[encryption]"`.

    Args:
        keys: the keys, the one to encrypt with first.
        require: set it to False to accept values that are not encrypted, until all processes encrypt.
    """

    def __init__(self, keys: Sequence[str | bytes], *, require: bool = True) -> None:
        super().__init__(keys, require=require)
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError:
            raise ConfigError('Encrypted needs cryptography; pip install "qbull[encryption]"') from None
        self._cipher = AESGCM
        self._invalid: type[Exception] = InvalidTag

    def encode(self, content: bytes, binding: bytes) -> bytes:
        """Encrypt the content with a key that is derived for it alone.

        Random nonces of 12 bytes would repeat too soon under one key.

        Args:
            content: the payload or the result.
            binding: its context, without which it cannot be decrypted.
        """
        salt = secrets.token_bytes(_SALT_BYTES)
        hidden = self._cipher(_derived_key(self.first, salt)).encrypt(bytes(12), content, binding)
        return wrapped_payload.wrap(ENCRYPTED_KIND, key_id(self.first) + salt + hidden)

    def decode(self, content: bytes, binding: bytes) -> bytes:
        """The content that was encrypted.

        Raises PayloadError if the key or the binding differs, or it was changed.
        """
        id, rest = wrapped_payload.split_key_id(content)
        if id not in self.keys:
            raise PayloadError(f"is encrypted with key {id}, which is not among those of this app")
        try:
            cipher = self._cipher(_derived_key(self.keys[id], rest[:_SALT_BYTES]))
            return cipher.decrypt(bytes(12), rest[_SALT_BYTES:], binding)
        except (self._invalid, ValueError):
            raise PayloadError(
                f"cannot be decrypted with key {id}: somebody has changed or moved it"
            ) from None


def _derived_key(key: bytes, salt: bytes) -> bytes:
    return hmac.digest(key, b"qbull encrypted" + salt, "sha256")
