"""Digits: a text is a number only if `int` reads it as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.digits import MAX_DIGITS, whole_number


@given(st.integers(0, 10**MAX_DIGITS - 1))
def test_a_number_is_read_back(number: int) -> None:
    assert whole_number(str(number)) == whole_number(str(number).encode()) == number


@given(st.text(st.characters(categories=["Nd", "No", "Nl", "Ll"])))
def test_no_text_raises(text: str) -> None:
    number = whole_number(text)
    assert number is None or (text.isascii() and int(text) == number)


@pytest.mark.parametrize("text", ["", "²", "٣", "①", "-1", "+1", "1_0", " 1", "9" * 5000, "0" * 5000])
def test_anything_else_is_no_number(text: str) -> None:
    assert whole_number(text) is whole_number(text.encode()) is None
