"""`qbull enqueue`: enqueue a job from the shell, with or without the app's code."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from qbull.cli.duration import SecondsParam
from qbull.cli.target import Target, on_target
from qbull.cli.terminal import print_json
from qbull.core.durability import DURABILITIES
from qbull.errors import ArgumentsError
from qbull.options import Options
from qbull.produce import by_name


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("task")
@click.argument("arguments", metavar="JSON")
@click.option(
    "--key",
    help="Key for ordering and per-key limits.  [default: with --app, the key that the task declares]",
)
@click.option("--id", help="Id of the job. While a job with this id exists, nothing is added.")
@click.option("--delay", type=click.FloatRange(0), help="Seconds until the job may run.")
@click.option(
    "--priority",
    type=click.IntRange(1, 10),
    default=5,
    show_default=True,
    help="Priority from 1 (first) to 10 (last).",
)
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    help="Durability profile of the job.  [default: QBULL_DURABILITY]",
)
@click.option(
    "--wait",
    type=SecondsParam(),
    metavar="SECONDS",
    help="Wait up to this long for the result and print it.",
)
@on_target
def enqueue(
    target: Target, queue_name: str, task: str, arguments: str, wait: float | None, **options: Any
) -> None:
    """Enqueue a job and print its id, or with --wait its result.

    \b
    Example:
      qbull enqueue email verify '{"user_id": "u1", "token": "t"}'
      qbull enqueue email verify - --wait 10 < arguments.json

    JSON is an object with the task's arguments by name; "-" reads it from standard input. With --app the
    arguments are checked before the job is sent, otherwise the worker checks them. With --wait the exit code
    is 1 if the job fails.
    """
    values = read_arguments(arguments)
    call_options = Options(**options)

    async def main() -> None:
        queue = await target.queue(queue_name)
        job = await by_name.enqueue(queue, task, values, call_options)
        if not job.created:
            click.echo(f"qbull: a job with the id {job.id} exists already; nothing was added", err=True)
        if wait is None:
            click.echo(job.id)
        else:
            print_json(await queue.job(job.id).result(wait))

    target.run(main)


def read_arguments(text: str) -> dict[str, Any]:
    """Parse a task's arguments from JSON; "-" reads the JSON from standard input."""
    if text == "-":
        text = sys.stdin.read()
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ArgumentsError(f"the arguments are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ArgumentsError(
            f'the arguments must be a JSON object, for example {{"user_id": "u1"}}, not {text[:40]}'
        )
    return value
