"""Wrapped payloads: what goes in comes out, and nothing else does."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.codecs.chain import CodecChain
from qbull.codecs.compress import Compressed
from qbull.codecs.encrypt import Encrypted
from qbull.codecs.sign import Signed
from qbull.core import wrapped_payload
from qbull.core.codec import decode_untyped
from qbull.errors import PayloadError

KEY, OTHER = bytes(range(32)), bytes(32)
CODECS = CodecChain([Compressed(over=20), Encrypted([KEY]), Signed([KEY])])


@given(st.binary(max_size=500))
def test_an_encoded_payload_decodes_to_itself(content: bytes) -> None:
    content = b"{" + content

    encoded = CODECS.encode("payload", "queue", "task", content)

    assert wrapped_payload.is_wrapped(encoded)
    assert CODECS.decode("payload", "queue", "task", encoded) == content


@given(st.binary(max_size=100), st.data())
def test_a_changed_byte_is_noticed(content: bytes, data: st.DataObject) -> None:
    for codecs in (CodecChain([Signed([KEY])]), CodecChain([Encrypted([KEY], require=True)])):
        encoded = bytearray(codecs.encode("payload", "queue", "task", b"{" + content))
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] ^= data.draw(st.integers(1, 255))

        with pytest.raises(PayloadError):
            codecs.decode("payload", "queue", "task", bytes(encoded))


@given(st.binary(max_size=300))
def test_any_bytes_behind_the_mark_are_shown_or_refused_and_never_break(content: bytes) -> None:
    encoded = b"\0" + content

    visible = decode_untyped(encoded)
    with suppress(PayloadError):
        visible = CodecChain().decode("payload", "queue", "task", encoded)

    assert visible is None or not wrapped_payload.is_wrapped(visible if isinstance(visible, bytes) else b"")


@pytest.mark.parametrize(
    ("what", "queue", "task"), [("result", "q", "t"), ("payload", "r", "t"), ("payload", "q", "u")]
)
def test_an_encoded_payload_holds_for_one_queue_and_task_only(what: str, queue: str, task: str) -> None:
    for codecs in (CodecChain([Signed([KEY])]), CodecChain([Encrypted([KEY])])):
        encoded = codecs.encode("payload", "q", "t", b"{}")

        with pytest.raises(PayloadError, match="somebody has changed or moved it"):
            codecs.decode(what, queue, task, encoded)  # type: ignore[arg-type]


def test_a_few_bytes_do_not_fill_the_memory() -> None:
    bomb = wrapped_payload.compress(b"0" * 20_000_000, 9)
    lie = bomb[:2] + (2**31).to_bytes(4, "big") + bomb[6:]
    short = bomb[:2] + (10).to_bytes(4, "big") + bomb[6:]

    assert decode_untyped(bomb) == {"compressed": "would be 20,000,000 bytes, the limit is 16,777,216"}
    with pytest.raises(PayloadError, match="the limit is 268,435,456"):
        CodecChain().decode("payload", "q", "t", lie)
    assert CodecChain().decode("payload", "q", "t", short) == b"0" * 10


def test_the_id_of_a_key_is_shown_and_two_encryptions_of_the_same_differ() -> None:
    first, second = (CodecChain([Encrypted([OTHER])]).encode("payload", "q", "t", b"{}") for _ in range(2))

    assert decode_untyped(first) == {"encrypted": f"key {wrapped_payload.key_id(OTHER).hex()}"}
    assert first != second
