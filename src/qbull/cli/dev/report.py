"""`qbull dev`: what is said of code that cannot be loaded. The line of the project at which it went wrong, and why; no traceback through libraries."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import msgspec

from qbull.cli.dev.files import is_own
from qbull.errors import QbullError
from qbull.observe.log import one_line

MAX_REPORT_LINE_CHARS = 2000
"""Characters of one line."""


class LoadReport(msgspec.Struct):
    """What a process says once its worker is up, and again when it has taken over; or why that will not be."""

    error: str = ""
    mendable: bool = True
    """The next save may make it good; otherwise it is the command or the server that is wrong."""
    pod: str = ""
    """What its worker has in the roster."""
    server: str = ""
    queues: list[str] = []


def report_of(error: QbullError) -> LoadReport:
    """Of an app that could not be loaded."""
    cause = error.__cause__ or error
    lines = [*_place(cause), _reason(cause)]
    return LoadReport(
        "\n".join(one_line(line)[:MAX_REPORT_LINE_CHARS] for line in lines), mendable=len(lines) > 1
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, QbullError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _place(error: BaseException) -> list[str]:
    """The last line of the project's own on the way to the error; nothing where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").rstrip()
        said = [f"{_shown(error.filename)}, line {error.lineno}", f"  {text}"]
        return [*said, "  " + " " * (error.offset - 1) + "^"] if error.offset and text else said
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    if not frames:
        return []
    last = frames[-1]
    return [f"{_shown(last.filename)}, line {last.lineno}", f"  {last.line}"]


def _shown(file: str) -> str:
    return os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file
