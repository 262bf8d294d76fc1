"""`qbull enqueue`: ask for a job from the shell, with the app's code or without it."""

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
@click.option("--key", help="What it is ordered by, or limited by.  [default: the task's own, with --app]")
@click.option("--id", help="Its id: while a job has it, a second one adds nothing.")
@click.option("--delay", type=click.FloatRange(0), help="Seconds until it may run.")
@click.option(
    "--priority", type=click.IntRange(1, 10), default=5, show_default=True, help="1 is first, 10 is last."
)
@click.option(
    "--durability", type=click.Choice(DURABILITIES), help="How safe it must be.  [default: QBULL_DURABILITY]"
)
@click.option(
    "--wait", type=SecondsParam(), metavar="SECONDS", help="Wait so long for its result, and print that."
)
@on_target
def enqueue(
    target: Target, queue_name: str, task: str, arguments: str, wait: float | None, **options: Any
) -> None:
    """Enqueue a job and print its id; with --wait its result.

    \b
    Example:
      qbull enqueue email verify '{"user_id": "u1", "token": "t"}'
      qbull enqueue email verify - --wait 10 < arguments.json

    JSON is an object: the task's arguments by name; "-" reads it from the input. With --app they are checked before
    anything is sent, without it by the worker. A job that has failed exits with 1.
    """
    values = read_arguments(arguments)
    call_options = Options(**options)

    async def main() -> None:
        queue = await target.queue(queue_name)
        job = await by_name.enqueue(queue, task, values, call_options)
        if not job.created:
            click.echo(f"qbull: a job with the id {job.id} was there already; nothing was added", err=True)
        if wait is None:
            click.echo(job.id)
        else:
            print_json(await queue.job(job.id).result(wait))

    target.run(main)


def read_arguments(text: str) -> dict[str, Any]:
    """A task's arguments by name, from an argument of the command or from its input."""
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
