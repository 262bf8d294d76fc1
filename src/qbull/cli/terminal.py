"""Terminal output: tables, times, JSON. Control characters from a job's data never reach the terminal."""

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
"""Width of the output if it is not a terminal: a file has no edge to wrap at."""
REDRAW_SECONDS = 1.0


def json_text(value: Any) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json_text(value))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Build a table. A column name with ">" is right-aligned, one with "*" takes the remaining width."""
    from rich.table import Table
    from rich.text import Text

    result = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        flexible = column.startswith("*")
        result.add_column(
            column.lstrip(">*"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis" if flexible else "fold",
            ratio=1 if flexible else None,
        )
    for row in rows:
        result.add_row(*(Text(one_line("–" if cell is None else str(cell))) for cell in row))
    return result


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; see `table` for the names of columns."""
    console().print(table(columns, rows))


def console() -> Console:
    """Return a console that neither highlights nor interprets markup."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else NON_TERMINAL_COLUMNS, highlight=False, markup=False)


async def watch(draw: Callable[[], Awaitable[Any]]) -> None:
    """Redraw every second until Ctrl-C.

    If the output is not a terminal, print one drawing after the other.
    """
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
    """Print one line of JSON every second until Ctrl-C."""
    while True:
        click.echo(msgspec.json.encode(await read()).decode())
        await asyncio.sleep(REDRAW_SECONDS)


def ago(at: datetime | None) -> str | None:
    """Return a time relative to now: "3 min ago", "in 20 s"."""
    if at is None:
        return None
    seconds = (datetime.now(UTC) - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """Return a duration in its two largest units."""
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


def short(value: Any, max_chars: int = 60) -> str:
    """Return a value on one line, cut to `max_chars` characters."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def lines_of(text: str) -> list[str]:
    """Return the lines of a traceback or a document without control characters."""
    return [one_line(line) for line in text.rstrip().split("\n")]
