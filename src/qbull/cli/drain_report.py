"""The output of a drain: progress on stderr, then a table or JSON."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from qbull.cli.terminal import print_table
from qbull.drain.move import DrainReport

DRAIN_PROGRESS_SECONDS = 2.0
"""Seconds between two progress lines."""


class DrainProgress:
    """Print a line every few seconds, on stderr."""

    def __init__(self) -> None:
        self._last_line_at = time.monotonic()

    def __call__(self, report: DrainReport) -> None:
        if time.monotonic() - self._last_line_at < DRAIN_PROGRESS_SECONDS:
            return
        self._last_line_at = time.monotonic()
        click.echo(f"qbull: {report.moved.total():,} moved, {report.left.total():,} left so far", err=True)
        sys.stderr.flush()


def print_drain(report: DrainReport, dry: bool, held_advice: str) -> None:
    """Print a report. `held_advice` says what to do about the messages that workers hold."""
    moved = "can be moved" if dry else "moved"
    rows = [[queue, count] for queue, count in sorted(report.moved.items()) if count]
    if rows:
        print_table(("queue", f">{moved}"), rows)
    click.echo(f"{report.moved.total():,} {moved}, {report.left.total():,} {'would stay' if dry else 'left'}")
    if report.left:
        reasons = [
            [count, queue, task, why, report.examples[queue, task, why]]
            for (queue, task, why), count in report.left.most_common()
        ]
        print_table((">left", "queue", "task", "reason", "example"), reasons)
    if report.held and held_advice:
        click.echo(f"qbull: {held_advice.format(count=f'{report.held:,}')}", err=True)


def drain_json(report: DrainReport, dry: bool) -> dict[str, Any]:
    return {
        "dryRun": dry,
        "moved": report.moved.total(),
        "queues": dict(report.moved),
        "left": [
            {
                "queue": queue,
                "task": task,
                "count": count,
                "reason": why,
                "example": report.examples[queue, task, why],
            }
            for (queue, task, why), count in report.left.most_common()
        ],
        "unacknowledged": report.held,
    }
