"""A duration on the command line: a number of seconds, or a number with a unit."""

from __future__ import annotations

from typing import Any

import click

from qbull.core.moment import parse_duration


class SecondsParam(click.ParamType[float]):
    """Seconds from 0: `90`, `90s`, `15m`, `2h` or `7d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


wait_for_result = click.option(
    "--wait",
    type=SecondsParam(),
    metavar="SECONDS",
    help="Wait up to this long for the result and print it.",
)
"""The flag of commands that enqueue one job."""
