"""Envelopes: what goes in comes out, and nothing else does."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.codecs.chain import CodecChain
from qbull.codecs.compress import Compressed
from qbull.codecs.encrypt import Encrypted
from qbull.codecs.sign import Signed
from qbull.core import envelope
from qbull.core.codec import decode_untyped
from qbull.errors import PayloadError

KEY, OTHER = bytes(range(32)), bytes(32)
SEALS = CodecChain([Compressed(over=20), Encrypted([KEY]), Signed([KEY])])


@given(st.binary(max_size=500))
def test_what_is_sealed_is_opened(content: bytes) -> None:
    content = b"{" + content

    sealed = SEALS.encode("payload", "queue", "task", content)

    assert envelope.is_wrapped(sealed)
    assert SEALS.decode("payload", "queue", "task", sealed) == content


@given(st.binary(max_size=100), st.data())
def test_a_changed_byte_is_noticed(content: bytes, data: st.DataObject) -> None:
    for seals in (CodecChain([Signed([KEY])]), CodecChain([Encrypted([KEY], require=True)])):
        sealed = bytearray(seals.encode("payload", "queue", "task", b"{" + content))
        at = data.draw(st.integers(0, len(sealed) - 1))
        sealed[at] ^= data.draw(st.integers(1, 255))

        with pytest.raises(PayloadError):
            seals.decode("payload", "queue", "task", bytes(sealed))


@given(st.binary(max_size=300))
def test_any_bytes_behind_the_mark_are_shown_or_refused_and_never_break(content: bytes) -> None:
    sealed = b"\0" + content

    visible = decode_untyped(sealed)
    with suppress(PayloadError):
        visible = CodecChain().decode("payload", "queue", "task", sealed)

    assert visible is None or not envelope.is_wrapped(visible if isinstance(visible, bytes) else b"")


@pytest.mark.parametrize(
    ("what", "queue", "task"), [("result", "q", "t"), ("payload", "r", "t"), ("payload", "q", "u")]
)
def test_a_seal_holds_for_one_queue_and_task_only(what: str, queue: str, task: str) -> None:
    for seals in (CodecChain([Signed([KEY])]), CodecChain([Encrypted([KEY])])):
        sealed = seals.encode("payload", "q", "t", b"{}")

        with pytest.raises(PayloadError, match="somebody has changed or moved it"):
            seals.decode(what, queue, task, sealed)  # type: ignore[arg-type]


def test_a_few_bytes_do_not_fill_the_memory() -> None:
    bomb = envelope.compress(b"0" * 20_000_000, 9)
    lie = bomb[:2] + (2**31).to_bytes(4, "big") + bomb[6:]
    short = bomb[:2] + (10).to_bytes(4, "big") + bomb[6:]

    assert decode_untyped(bomb) == {"compressed": "would be 20,000,000 bytes, the limit is 16,777,216"}
    with pytest.raises(PayloadError, match="the limit is 268,435,456"):
        CodecChain().decode("payload", "q", "t", lie)
    assert CodecChain().decode("payload", "q", "t", short) == b"0" * 10


def test_the_id_of_a_key_is_shown_and_two_seals_of_the_same_differ() -> None:
    first, second = (CodecChain([Encrypted([OTHER])]).encode("payload", "q", "t", b"{}") for _ in range(2))

    assert decode_untyped(first) == {"encrypted": f"key {envelope.key_id(OTHER).hex()}"}
    assert first != second
