"""Log levels: how important a line is that a task has logged. Lines without one are stored as they are."""

from __future__ import annotations

from typing import Literal, get_args

from qbull.errors import ArgumentsError, quoted_choices

LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)

_MARK = "\x1e"
_BY_LETTER: dict[str, LogLevel] = {level[0]: level for level in LOG_LEVELS}


def marked(text: str, level: LogLevel) -> str:
    """A line as it is stored: with the letter of its level, unless that is info."""
    if level not in LOG_LEVELS:
        raise ArgumentsError(f"log(level={level!r:.40}): use {quoted_choices(LOG_LEVELS)}")
    return text if level == "info" and not text.startswith(_MARK) else f"{_MARK}{level[0]}{text}"


def unmarked(stored: str) -> tuple[str, LogLevel]:
    """A stored line without its mark, and its level."""
    if stored[:1] == _MARK and (level := _BY_LETTER.get(stored[1:2])) is not None:
        return stored[2:], level
    return stored, "info"
