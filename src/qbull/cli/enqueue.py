"""`qbull enqueue`: enqueue a job from the shell, with or without the app's code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from qbull.cli.duration import SecondsParam, read_coming_moment, wait_for_result
from qbull.cli.target import Target, on_target, with_reason
from qbull.cli.terminal import print_json
from qbull.core.durability import DURABILITIES
from qbull.core.options import JOB_OPTIONS, OptionKind, options_from
from qbull.errors import ArgumentsError
from qbull.produce import by_name
from qbull.store import audit
from qbull.views.jobs import UniqueBody


class EndParam(click.ParamType[Any]):
    """Seconds, or a time as people write it."""

    name = "end"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        try:
            return float(value)
        except ValueError:
            return str(value)


class UniqueParam(click.ParamType[Any]):
    """A window in seconds, or a JSON object with window, by and mode."""

    name = "unique"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return msgspec.json.decode(value, type=float | UniqueBody)
        except msgspec.MsgspecError as error:
            self.fail(f"{value}: give seconds, or an object such as {_UNIQUE_EXAMPLE} ({error})", param, ctx)


_UNIQUE_EXAMPLE = '{"window": 60, "by": ["user_id"]}'
_FLAG_TYPES: dict[OptionKind, click.ParamType[Any]] = {
    "seconds": SecondsParam(),
    "duration": SecondsParam(),
    "moment": click.STRING,
    "end": EndParam(),
    "priority": click.IntRange(1, 10),
    "weight": click.IntRange(0, 1_000_000_000),
    "key": click.STRING,
    "id": click.STRING,
    "unique": UniqueParam(),
    "durability": click.Choice(DURABILITIES),
}


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for each option of a call."""
    for option in reversed(JOB_OPTIONS):
        if option.in_json:
            kind, metavar = _FLAG_TYPES[option.kind], option.metavar
            flag = click.option(f"--{option.name}", type=kind, metavar=metavar, help=option.help)
            command = flag(command)
    return command


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("task")
@click.argument("arguments", metavar="JSON")
@with_job_options
@wait_for_result
@with_reason
@on_target
def enqueue(
    target: Target, queue_name: str, task: str, arguments: str, wait: float | None, **options: Any
) -> None:
    """Enqueue a job and print its id, or with --wait its result.

    \b
    Example:
      qbull enqueue email verify '{"user_id": "u1", "token": "t"}'
      qbull enqueue email verify - --wait 10 < arguments.json

    JSON is an object with the task's arguments by name; "-" reads it from standard input. The
    arguments are checked before the job is sent: by the code with --app, else as workers have published the
    task. With --wait the exit code is 1 if the job fails.
    """
    values = read_arguments(arguments)
    call_options = options_from(options, read_coming_moment)

    async def main() -> None:
        queue = await target.queue(queue_name)
        async with audit.entry(target.store, "enqueue", f"{queue_name}/{task}"):
            job = await by_name.enqueue(queue, task, values, call_options)
            audit.note(job=job.id)
        if not job.created:
            click.echo(f"qbull: a job with the id {job.id} exists already; nothing was added", err=True)
        if wait is None:
            click.echo(job.id)
        else:
            print_json(await queue.job(job.id).result(wait))

    target.run(main)


def read_json(what: str, text: str) -> Any:
    """Parse JSON; "-" reads it from standard input. `what` starts the error message."""
    if text == "-":
        text = sys.stdin.read()
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ArgumentsError(f"{what} not JSON: {error}") from None


def read_arguments(text: str) -> dict[str, Any]:
    """Parse a task's arguments from JSON; "-" reads the JSON from standard input."""
    value = read_json("the arguments are", text)
    if not isinstance(value, dict):
        raise ArgumentsError(
            f'the arguments must be a JSON object, for example {{"user_id": "u1"}}, not {text[:40]}'
        )
    return value
