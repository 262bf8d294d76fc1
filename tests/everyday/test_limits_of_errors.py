"""An error text of any size is cut before it is formatted: it costs no memory, and the traceback keeps its frames."""

from __future__ import annotations

import tracemalloc

from qbull.core.outcome import describe
from qbull.core.stacktrace import MAX_STACKTRACE_CHARS, format_stacktrace

MEGABYTE = 1_000_000


def raise_long_error() -> None:
    text = "x" * 50 * MEGABYTE
    try:
        raise ValueError(text)
    except ValueError as error:
        raise RuntimeError(text) from error


def test_a_long_error_text_is_cut_before_it_is_formatted() -> None:
    try:
        raise_long_error()
    except RuntimeError as error:
        tracemalloc.start()
        try:
            reason, trace = describe(error), format_stacktrace(error)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert reason.startswith("RuntimeError: xxx") and len(reason) < 2_100
    assert trace is not None and len(trace) <= MAX_STACKTRACE_CHARS
    assert trace.count("in raise_long_error") == 2 and "ValueError: xxx" in trace
    assert peak_bytes < 10 * MEGABYTE
