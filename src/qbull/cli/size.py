"""A size on the command line: a number with a unit, such as 500MB."""

from __future__ import annotations

import re
from typing import Any

import click

_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


class SizeParam(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, or a number with KB, MB or GB; a kilobyte has 1024 bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMG]?)I?B?", str(value).strip().upper())
        size = round(float(match.group(1)) * _SIZE_UNITS[match.group(2)]) if match is not None else 0
        if size < 1:
            self.fail(f"{value!r} is not a size; use a number with a unit, such as 500MB or 2GB", param, ctx)
        return size
