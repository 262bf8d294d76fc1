"""The text of a traceback is the one that Python writes."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from qbull.core import stacktrace
from qbull.core.stacktrace import MAX_CACHED_FRAMES, format_stacktrace


class Own(Exception):
    """An error of a library, in a module of its own."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def deep(levels: int, error: BaseException) -> None:
    if levels == 0:
        raise error
    deep(levels - 1, error)


def two_lines() -> None:
    raise ValueError(
        "first line\nsecond line"
    )  # fmt: skip


def one_of_two(first: bool) -> None:
    if first: raise ValueError("a"); raise ValueError("b")  # noqa: E701, E702  # fmt: skip
    raise ValueError("c")


def with_cause() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise Own("outer") from error


def with_context() -> None:
    try:
        raise KeyError("inner")
    except KeyError:
        raise Own("outer")  # noqa: B904


def without_context() -> None:
    try:
        raise KeyError("inner")
    except KeyError:
        raise Own("outer") from None


def with_notes() -> None:
    error = Own("noted")
    error.add_note("a note")
    raise error


def in_a_group() -> None:
    raise ExceptionGroup("two", [Own("a"), KeyError("b")])


def misspelt() -> None:
    "text".uper()  # type: ignore[attr-defined]


def of_source() -> None:
    compile("a b", "<text>", "exec")


def from_generated_code() -> None:
    exec(compile("def f():\n    1 / 0\nf()", "<made>", "exec"), {})


def raised(call: Callable[[], None]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "call",
    [
        lambda: deep(0, Own("a message")),
        lambda: deep(1, ValueError()),
        lambda: deep(2, KeyError("key")),
        lambda: deep(5, ZeroDivisionError("repeated frames")),
        lambda: deep(50, RecursionError("many repeated frames")),
        lambda: deep(0, SystemExit(3)),
        lambda: one_of_two(True),
        lambda: one_of_two(False),
        lambda: deep(0, Unprintable()),
        two_lines,
        with_cause,
        with_context,
        without_context,
        with_notes,
        in_a_group,
        misspelt,
        of_source,
        from_generated_code,
    ],
)
def test_it_is_the_text_that_python_writes(call: Callable[[], None]) -> None:
    error = raised(call)

    expected = "".join(traceback.format_exception(error))

    assert format_stacktrace(error) == expected
    assert format_stacktrace(error) == expected, "the second time from what was kept"


def test_an_error_that_was_never_raised_has_no_frames() -> None:
    assert format_stacktrace(ValueError("made")) == "ValueError: made\n"


def test_the_text_stays_that_of_the_code_that_runs(tmp_path: Path) -> None:
    module = tmp_path / "tasks.py"
    module.write_text("def fail():\n    raise ValueError('old')\n")
    names: dict[str, Callable[[], None]] = {}
    exec(compile(module.read_text(), str(module), "exec"), names)
    before = format_stacktrace(raised(names["fail"]))

    module.write_text("\n\n# a deploy replaced the file\n")

    assert before is not None and "raise ValueError('old')" in before
    assert format_stacktrace(raised(names["fail"])) == before


def test_what_is_kept_is_bounded() -> None:
    stacktrace._frames.clear()
    source = "\n".join(f"def f{n}(): raise ValueError({n})" for n in range(MAX_CACHED_FRAMES))
    names: dict[str, Callable[[], None]] = {}
    exec(compile(source, "<many>", "exec"), names)

    for n in range(MAX_CACHED_FRAMES):
        format_stacktrace(raised(names[f"f{n}"]))

    assert 0 < len(stacktrace._frames) <= MAX_CACHED_FRAMES
