"""Signed: middleware that signs arguments, results and schedules."""

from __future__ import annotations

from collections.abc import Sequence

from qbull.codecs.keys import KeyedCodec
from qbull.core import wrapped_payload
from qbull.errors import PayloadError


class Signed(KeyedCodec):
    """Signs arguments, results and schedules: `Signed([key, older_key])`.

    A worker runs a job only if a holder of a key enqueued it for that task and under that id, unchanged.
    Schedules, and the results that a caller or a job of a flow reads, are checked in the same way.

    Args:
        keys: the keys, the one to sign with first.
        require: set it to False to accept values without a signature too, until all processes sign.
    """

    def __init__(self, keys: Sequence[str | bytes], *, require: bool = True) -> None:
        super().__init__(keys, require=require)

    def encode(self, content: bytes, binding: bytes) -> bytes:
        """Sign the content together with its binding."""
        return wrapped_payload.sign(self.first, content, binding)

    def decode(self, content: bytes, binding: bytes) -> bytes:
        """The content that was signed.

        Raises PayloadError if the key is unknown or the signature is wrong.

        Args:
            content: the signed bytes.
            binding: the context that was signed with them.
        """
        id, signed = wrapped_payload.split_key_id(content)
        if id not in self.keys:
            raise PayloadError(f"is signed with key {id}, which is not among those of this app")
        if not wrapped_payload.is_signature_valid(self.keys[id], signed, binding):
            raise PayloadError(f"does not fit its signature with key {id}: somebody has changed or moved it")
        return wrapped_payload.signed_content(signed)
