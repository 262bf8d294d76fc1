"""Tests that need a program which this machine may not have: Node, a browser, kubectl, curl, a C compiler and others.

Without it they are skipped. With QBULL_NO_SKIPS=1, as in CI, they fail: a missing program must not hide a test.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def needs_tool(is_there: object, reason: str) -> pytest.MarkDecorator:
    """A mark for tests that need a tool. `reason` says what is missing if `is_there` is false."""
    return pytest.mark.needs_tool(bool(is_there), reason)


def check_tools(item: pytest.Item) -> None:
    """Skip or fail a test whose mark says that its tool is missing; conftest.py calls this before each test."""
    for mark in item.iter_markers("needs_tool"):
        is_there, reason = mark.args
        if not is_there:
            skip_without_tool(reason)


def skip_without_tool(reason: str) -> NoReturn:
    """Skip the test that runs, or let it fail if no tool may be missing."""
    if os.environ.get("QBULL_NO_SKIPS") == "1":
        pytest.fail(f"{reason}; with QBULL_NO_SKIPS=1, this test may not be skipped", pytrace=False)
    pytest.skip(reason)
