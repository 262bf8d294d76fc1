"""The level of a log line travels in front of its text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbull
from qbull.core.log_level import LOG_LEVELS, marked, unmarked


@given(st.text(), st.sampled_from(LOG_LEVELS))
def test_a_line_comes_back_with_its_level(text: str, level: Any) -> None:
    assert unmarked(marked(text, level)) == (text, level)


@given(st.text())
def test_any_stored_line_can_be_read(stored: str) -> None:
    text, level = unmarked(stored)
    assert level in LOG_LEVELS
    assert stored.endswith(text)


def test_an_ordinary_line_is_stored_as_it_is() -> None:
    assert marked("half of it", "info") == "half of it"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(qbull.ArgumentsError, match=r"log\(level='loud'\): use"):
        marked("x", "loud")  # type: ignore[arg-type]
