"""A length of time on the command line: a number of seconds from 0 that a clock can count."""

from __future__ import annotations

import math
from typing import Any

import click


class SecondsParam(click.FloatRange):
    """Without the numbers that end no wait: nan is in every range, and infinity in those without an end."""

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value}: give a number of seconds", param, ctx)
        return seconds
