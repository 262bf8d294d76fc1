"""`qbull job --steps` and `--published`: the steps of a durable job, and the values that it shows."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from qbull.cli.terminal import ago, print_json, print_table, short, span
from qbull.core.recorded_steps import RecordedStep
from qbull.observe.log import one_line
from qbull.views.shape import iso_time, to_plain
from qbull.views.steps import step_view

_MAX_SHOWN_CHARS = 200


def print_steps(steps: list[RecordedStep], as_json: bool) -> None:
    """Print the steps of a job as a table, or as JSON."""
    if as_json:
        print_json([to_plain(step_view(step)) for step in steps])
        return
    if not steps:
        click.echo("no recorded steps", err=True)
        return
    rows: list[list[object]] = [
        [
            step.number,
            step.name,
            _state(step),
            ago(step.started_at),
            span(step.duration),
            step.attempts,
            short(_content(step), _MAX_SHOWN_CHARS),
        ]
        for step in steps
    ]
    print_table((">", "step", "state", "started", ">took", ">attempts", "*result or error"), rows)


def print_published(values: dict[str, Any], as_json: bool) -> None:
    """Print the published values of a job, one in each line, or as JSON."""
    if as_json:
        print_json(values)
        return
    if not values:
        click.echo("no published values", err=True)
    for name, value in values.items():
        click.echo(one_line(f"{name}: {msgspec.json.encode(value).decode()}"))


def _state(step: RecordedStep) -> str:
    if step.state == "calling" and step.called is not None:
        return f"calling {step.called['queue']} {step.called['id']}"
    return step.state if step.until is None else f"{step.state} until {iso_time(step.until)}"


def _content(step: RecordedStep) -> object:
    if step.omitted:
        return "…"
    return step.result if step.error is None else step.error
