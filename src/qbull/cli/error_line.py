"""An error as the command line shows it: one line on stderr."""

from __future__ import annotations

from qbull.observe.log import one_line

MAX_CLI_MESSAGE_CHARS = 800
"""Longest error message in characters. The message may quote an argument of any length."""


def error_line(message: str) -> str:
    """The line for an error, without control characters and lone surrogates."""
    return f"qbull: {_shortened(one_line(message).encode(errors='backslashreplace').decode())}"


def _shortened(line: str) -> str:
    """Cut the middle out of a long message: the fact is at its start, the remedy at its end."""
    if len(line) <= MAX_CLI_MESSAGE_CHARS:
        return line
    half = MAX_CLI_MESSAGE_CHARS // 2
    return f"{line[:half]} … {line[-half:]}"
