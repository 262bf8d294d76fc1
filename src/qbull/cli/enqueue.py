"""`qbull enqueue`: ask for a job from the shell, with the app's code or without it."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from qbull.cli.show import print_json
from qbull.cli.target import Target, on_target
from qbull.core.codec import encode_payload
from qbull.core.durability import PROFILES
from qbull.errors import ArgumentsError, ConfigError, NotFound
from qbull.handle import Job
from qbull.queue import Arguments, Call, Options, Queue


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
    "--durability", type=click.Choice(PROFILES), help="How safe it must be.  [default: QBULL_DURABILITY]"
)
@click.option(
    "--wait", type=click.FloatRange(0), metavar="SECONDS", help="Wait so long for its result, and print that."
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
        if target.has_code and queue.tasks:
            job = await _checked(queue, task, call_options, values)
        else:
            job = await _unchecked(target, queue, task, call_options, values)
        if not job.created:
            click.echo(f"qbull: a job with the id {job.id} was there already; nothing was added", err=True)
        if wait is None:
            click.echo(job.id)
        else:
            print_json(await queue.job(job.id).result(wait))

    target.run(main)


async def _checked(queue: Queue, task: str, options: Options, values: dict[str, Any]) -> Job[Any]:
    """By the code of the task, as a program would."""
    if task not in queue.tasks:
        raise NotFound(_unknown(queue.name, task, sorted(queue.tasks), "in this app"))
    return await Call[..., Any](queue, queue.tasks[task], options).enqueue(**values)


async def _unchecked(
    target: Target, queue: Queue, task: str, options: Options, values: dict[str, Any]
) -> Job[Any]:
    """For a task that the server has heard of and whose code is elsewhere: its worker checks the arguments."""
    known = await target.store.tasks(queue.name)
    if task not in known:
        raise NotFound(_unknown(queue.name, task, known, "known to the server"))
    if queue.settings.order == "key" and options.key is None:
        raise ConfigError(
            f'queue "{queue.name}" is ordered by key; give --key KEY, or --app MODULE:APP so that the task can make it'
        )
    payload = encode_payload(task, values)
    client = target.app.client()
    layout = await client.layout(queue.settings)
    placed = queue.place(layout, task, Arguments(payload, options.key, options.id), options)
    created = await client.enqueue(queue.settings, placed, options.durability or target.app.durability)
    return queue.handle(placed.job.id, created)


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
    if "self" in value:
        raise ArgumentsError('no argument of a task can be called "self"')
    return value


def _unknown(queue: str, task: str, known: list[str], where: str) -> str:
    return f'queue "{queue}": no task "{task}" is {where}; there is: {", ".join(known) or "none"}'
