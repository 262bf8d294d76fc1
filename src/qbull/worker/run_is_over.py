"""The place of a run in its job when the run is over."""

from __future__ import annotations

from typing import NoReturn, cast

from qbull.errors import QbullError
from qbull.worker.step_calls import StepRunner


class _RunIsOver:
    """A runner without calls."""

    def __getattr__(self, name: str) -> NoReturn:
        called = "emit" if name == "emission" else name
        raise QbullError(f"{called}(): its job has ended; await all steps before the task returns")


RUN_IS_OVER = cast(StepRunner, _RunIsOver())
"""Takes the place of the run: a job and its run would keep each other in memory."""
