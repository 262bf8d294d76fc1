"""Durations and times on the command line: `90s`, `2h`, `yesterday`, `2030-01-31`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from qbull.core.moment import parse_duration, parse_moment
from qbull.errors import ArgumentsError


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


def read_past_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse a time; `2h` is two hours ago. For options."""
    if value is None:
        return None
    try:
        return parse_moment(value, datetime.now(UTC), None)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(str(error)) from None


def read_coming_moment(name: str, text: str) -> datetime:
    """Parse a time; `2h` is in two hours."""
    try:
        return parse_moment(text, datetime.now(UTC), None, is_coming=True)
    except (ValueError, OverflowError) as error:
        raise ArgumentsError(f"{name}: {error}") from None


wait_for_result = click.option(
    "--wait",
    type=SecondsParam(),
    metavar="SECONDS",
    help="Wait up to this long for the result and print it.",
)
"""The flag of commands that enqueue one job."""
