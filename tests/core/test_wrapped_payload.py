"""Wrapped payloads: what goes in comes out, and nothing else does."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.codecs.chain import CodecChain
from qbull.codecs.compress import Compressed
from qbull.codecs.context import Purpose, ValueContext
from qbull.codecs.encrypt import Encrypted
from qbull.codecs.sign import Signed
from qbull.core import wrapped_payload
from qbull.core.codec import decode_untyped
from qbull.errors import PayloadError

KEY, OTHER = bytes(range(32)), bytes(32)
WHERE = ValueContext("payload", "queue", "task", "job-1", b"more")
CODECS = CodecChain([Compressed(over=20), Encrypted([KEY]), Signed([KEY])])


@pytest.mark.parametrize("purpose", get_args(Purpose))
def test_a_value_of_every_kind_that_is_not_signed_is_refused_with_a_remedy(purpose: Purpose) -> None:
    with pytest.raises(PayloadError, match=r"is not signed, and this app requires it; .* the key, or give"):
        CodecChain([Signed([KEY])]).open(WHERE._replace(purpose=purpose), b"{}")


@given(st.binary(max_size=500))
def test_an_encoded_payload_decodes_to_itself(content: bytes) -> None:
    content = b"{" + content

    encoded = CODECS.protect(WHERE, content)

    assert wrapped_payload.is_wrapped(encoded)
    assert CODECS.open(WHERE, encoded) == content


@given(st.binary(max_size=100), st.data())
def test_a_changed_byte_is_noticed(content: bytes, data: st.DataObject) -> None:
    for codecs in (CodecChain([Signed([KEY])]), CodecChain([Encrypted([KEY], require=True)])):
        encoded = bytearray(codecs.protect(WHERE, b"{" + content))
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] ^= data.draw(st.integers(1, 255))

        with pytest.raises(PayloadError):
            codecs.open(WHERE, bytes(encoded))


@given(st.binary(max_size=300))
def test_any_bytes_behind_the_mark_are_shown_or_refused_and_never_break(content: bytes) -> None:
    encoded = b"\0" + content

    visible = decode_untyped(encoded)
    with suppress(PayloadError):
        visible = CodecChain().open(WHERE, encoded)

    assert visible is None or not wrapped_payload.is_wrapped(visible if isinstance(visible, bytes) else b"")


@pytest.mark.parametrize(
    "elsewhere",
    [
        WHERE._replace(purpose="result"),
        WHERE._replace(purpose="unique payload"),
        WHERE._replace(queue="other"),
        WHERE._replace(task="other"),
        WHERE._replace(id="job-2"),
        WHERE._replace(more=b""),
        WHERE._replace(id="job-1more", more=b""),
    ],
)
def test_a_protected_value_holds_for_one_context_only(elsewhere: ValueContext) -> None:
    for codecs in (CodecChain([Signed([KEY])]), CodecChain([Encrypted([KEY])])):
        protected = codecs.protect(WHERE, b"{}")

        assert codecs.open(WHERE, protected) == b"{}"
        with pytest.raises(PayloadError, match="somebody has changed or moved it"):
            codecs.open(elsewhere, protected)


@given(
    st.lists(st.text(max_size=3), min_size=4, max_size=4),
    st.lists(st.text(max_size=3), min_size=4, max_size=4),
)
def test_no_two_contexts_have_the_same_bytes(one: list[str], other: list[str]) -> None:
    first, second = (ValueContext("payload", a, b, c, d.encode()) for a, b, c, d in (one, other))

    assert (first.binding() == second.binding()) == (first == second)


@pytest.mark.parametrize("codec", [Signed, Encrypted])
def test_each_kind_of_value_needs_its_codec_unless_the_app_is_lenient(
    codec: type[Signed | Encrypted],
) -> None:
    purposes: list[Purpose] = ["payload", "unique payload", "result", "schedule", "step"]
    for purpose in purposes:
        where = WHERE._replace(purpose=purpose)
        with pytest.raises(
            PayloadError, match=r"is not (signed|encrypted), and this app requires it; .*require=False"
        ):
            CodecChain([codec([KEY])]).open(where, b"{}")
        assert CodecChain([codec([KEY], require=False)]).open(where, b"{}") == b"{}"


def earlier(key: bytes, content: bytes, where: ValueContext) -> bytes:
    """A value as the first build of 0.1.0 signed it: without the id of its job."""
    signed = wrapped_payload.sign(key, content, where.earlier_binding())
    return b"\0s" + signed[2:]


def test_a_value_that_is_not_bound_to_its_job_is_read_by_lenient_apps_only() -> None:
    old = earlier(KEY, b"{}", WHERE)

    assert CodecChain([Signed([KEY], require=False)]).open(WHERE, old) == b"{}"
    assert CodecChain([Signed([KEY], require=False)]).open(WHERE._replace(id="any"), old) == b"{}"
    with pytest.raises(
        PayloadError, match="is signed as an earlier qbull did, which does not bind it to its job"
    ):
        CodecChain([Signed([KEY])]).open(WHERE, old)


@pytest.mark.parametrize("lenient", [True, False])
def test_nested_layers_cost_no_more_than_one_of_each_kind(lenient: bool) -> None:
    nested = b"{}"
    for _ in range(2000):
        nested = wrapped_payload.compress(nested, 1)
    signed = b"{}"
    for _ in range(50):
        signed = wrapped_payload.sign(KEY, signed, WHERE.binding())
    codecs = CodecChain([Signed([KEY], require=False)] if lenient else [])

    for bomb in (nested, signed):
        with pytest.raises(PayloadError, match="is encoded twice by the same codec"):
            codecs.open(WHERE, bomb)
        assert decode_untyped(bomb) == {"encoded": "too often; no qbull writes that"}


def test_a_few_bytes_do_not_fill_the_memory() -> None:
    bomb = wrapped_payload.compress(b"0" * 20_000_000, 9)
    lie = bomb[:2] + (2**31).to_bytes(4, "big") + bomb[6:]
    short = bomb[:2] + (10).to_bytes(4, "big") + bomb[6:]

    assert decode_untyped(bomb) == {"compressed": "would be 20,000,000 bytes, the limit is 16,777,216"}
    with pytest.raises(PayloadError, match="the limit is 268,435,456"):
        CodecChain().open(WHERE, lie)
    assert CodecChain().open(WHERE, short) == b"0" * 10


def test_the_id_of_a_key_is_shown_and_two_encryptions_of_the_same_differ() -> None:
    first, second = (CodecChain([Encrypted([OTHER])]).protect(WHERE, b"{}") for _ in range(2))

    assert decode_untyped(first) == {"encrypted": f"key {wrapped_payload.key_id(OTHER).hex()}"}
    assert first != second
