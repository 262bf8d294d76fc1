"""How things look in a terminal: tables, times, JSON. Nothing that a job contains can steer the terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from qbull.observe.log import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NON_TERMINAL_COLUMNS = 240
"""Columns where the output is no terminal: a file has no edge to wrap at."""
REDRAW_SECONDS = 1.0


def json_text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def print_json(value: Any) -> None:
    click.echo(json_text(value))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Columns that begin with ">" are numbers, set to the right; one that begins with "*" takes what room is left."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        flexible = column.startswith("*")
        made.add_column(
            column.lstrip(">*"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis" if flexible else "fold",
            ratio=1 if flexible else None,
        )
    for row in rows:
        made.add_row(*(Text(one_line("–" if cell is None else str(cell))) for cell in row))
    return made


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    console().print(table(columns, rows))


def console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else NON_TERMINAL_COLUMNS, highlight=False, markup=False)


async def watch(draw: Callable[[], Awaitable[Any]]) -> None:
    """Draw again every second, until Ctrl-C. Where the output is no terminal, one drawing follows the other."""
    if not sys.stdout.isatty():
        while True:
            console().print(await draw())
            await asyncio.sleep(REDRAW_SECONDS)
    from rich.live import Live

    with Live(await draw(), console=console(), auto_refresh=False, screen=True) as live:
        while True:
            await asyncio.sleep(REDRAW_SECONDS)
            live.update(await draw(), refresh=True)


async def watch_json(read: Callable[[], Awaitable[Any]]) -> None:
    """One line of JSON every second, until Ctrl-C."""
    while True:
        click.echo(msgspec.json.encode(await read()).decode())
        await asyncio.sleep(REDRAW_SECONDS)


def ago(at: datetime | None) -> str | None:
    """ "3 min ago", "in 20 s"."""
    if at is None:
        return None
    seconds = (datetime.now(UTC) - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time in its two largest units."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    if hours < 24:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def short(value: Any, most: int = 60) -> str:
    """A value on one line, cut where it is long."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= most else text[: most - 1] + "…"


def lines_of(text: str) -> list[str]:
    """The lines of a traceback or a document, each of them harmless."""
    return [one_line(line) for line in text.rstrip().split("\n")]
