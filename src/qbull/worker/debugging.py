"""Debugging: breakpoints in processes that have no terminal."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from qbull.errors import QbullError


def refuse_breakpoints() -> None:
    """Let `breakpoint()` fail with a hint: a worker process has no standard input, and pdb would only quit.

    A debugger that PYTHONBREAKPOINT names, or that has set its own hook, stays in charge.
    """
    if sys.breakpointhook is sys.__breakpointhook__ and not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = _refused


def _refused(*_: Any, **__: Any) -> NoReturn:
    raise QbullError(
        "breakpoint() needs a terminal, and this worker process has none. "
        'Run "qbull worker MODULE:APP --debug", or "qbull run-job -A MODULE:APP QUEUE ID".'
    )
