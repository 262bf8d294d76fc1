"""Syntax trees of Python files, for tests that read code."""

from __future__ import annotations

import ast
import gc


def parse_source(text: str, name: str = "<unknown>") -> ast.Module:
    """Like `ast.parse`, without a garbage collection meanwhile.

    A collection may log an error that nobody has retrieved. Python 3.11 parses the lines of its traceback, and a
    parse inside another one ends the outer one with a SystemError.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text, name)
    finally:
        if was_enabled:
            gc.enable()
