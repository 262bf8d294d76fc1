"""Keys of the codecs that sign and encrypt."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence

from qbull.core.wrapped_payload import key_id
from qbull.errors import ConfigError
from qbull.middleware import Middleware

_KEY_BYTES = 32


class KeyedCodec(Middleware):
    """A codec with keys.

    It encodes with the first key and decodes with any, so keys can be rotated without a pause.

    Args:
        keys: the keys, the one to encode with first.
        require: whether a value that was not encoded is refused.
    """

    def __init__(self, keys: Sequence[str | bytes], *, require: bool = True) -> None:
        if isinstance(keys, str | bytes) or not keys:
            raise ConfigError(f"{type(self).__name__}: give a list of keys, the one to use first")
        self.keys = {key_id(key).hex(): key for key in (self._key(given) for given in keys)}
        self.require = require
        self.first_id, self.first = next(iter(self.keys.items()))

    @staticmethod
    def new_key() -> str:
        """Make a key, as text for an environment variable or a vault."""
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
