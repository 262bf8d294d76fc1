"""A duration on the command line: a finite number of seconds from 0."""

from __future__ import annotations

import math
from typing import Any

import click


class SecondsParam(click.FloatRange):
    """Seconds, without nan and infinity, which click's FloatRange accepts."""

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return seconds


wait_for_result = click.option(
    "--wait",
    type=SecondsParam(),
    metavar="SECONDS",
    help="Wait up to this long for the result and print it.",
)
"""The flag of commands that enqueue one job."""
