"""`qbull dev`: the report of a process about its app. If the code cannot be loaded, it names the project's
line and the reason, without a traceback through libraries.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import msgspec

from qbull.cli.dev.files import is_own
from qbull.errors import QbullError
from qbull.observe.log import one_line

MAX_REPORT_LINE_CHARS = 2000


class LoadReport(msgspec.Struct):
    """Sent when the worker of a process is up, again when it has taken over, or with an error."""

    error: str = ""
    fixable: bool = True
    """Whether the next save may fix the error; otherwise the command or the server is at fault."""
    pod: str = ""
    """The pod of its worker in the worker registry."""
    server: str = ""
    queues: list[str] = []
    login_code: str = ""
    """The code of a login link; only of the first process."""


def report_of(error: QbullError) -> LoadReport:
    """Make the report about an app that could not be loaded."""
    cause = error.__cause__ or error
    lines = [*_location(cause), _reason(cause)]
    return LoadReport(
        "\n".join(one_line(line)[:MAX_REPORT_LINE_CHARS] for line in lines), fixable=len(lines) > 1
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, QbullError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _location(error: BaseException) -> list[str]:
    """Return the last line of the project's own code on the way to the error; nothing if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").rstrip()
        lines = [f"{_shown(error.filename)}, line {error.lineno}", f"  {text}"]
        return [*lines, "  " + " " * (error.offset - 1) + "^"] if error.offset and text else lines
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    if not frames:
        return []
    last = frames[-1]
    return [f"{_shown(last.filename)}, line {last.lineno}", f"  {last.line}"]


def _shown(file: str) -> str:
    return os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file
