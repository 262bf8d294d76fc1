"""Digits: numbers in texts that somebody else wrote.

`str.isdigit` accepts characters that `int` refuses ("²"), and `int` refuses more than 4,300 digits. So a
check with `isdigit` before `int` still raises ValueError.
"""

from __future__ import annotations

MAX_DIGITS = 18
"""A number of this many digits fits into 64 bits."""


def whole_number(text: str | bytes) -> int | None:
    """The number that a text of the digits 0 to 9 stands for; None for any other text."""
    if len(text) > MAX_DIGITS or not text.isascii() or not text.isdigit():
        return None
    return int(text)
