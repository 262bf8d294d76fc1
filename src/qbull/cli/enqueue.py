"""`qbull enqueue`: ask for a job from the shell, with the app's code or without it."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from qbull.cli.show import print_json
from qbull.cli.target import Target, on_target
from qbull.core.codec import PAYLOAD_LIMIT, Signature
from qbull.core.task import TaskSpec
from qbull.errors import ArgumentsError, ConfigError, NotFound, TooLarge
from qbull.queue import Call, Options, Queue


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
    values = _object(arguments)
    call_options = Options(**options)

    async def main() -> None:
        queue = await target.queue(queue_name)
        spec = await _spec(target, queue, task, call_options.key)
        job = await Call[..., Any](queue, spec, call_options).enqueue(**values)
        if not job.created:
            click.echo(f"qbull: a job with the id {job.id} was there already; nothing was added", err=True)
        if wait is None:
            click.echo(job.id)
        else:
            print_json(await queue.job(job.id).result(wait))

    target.run(main)


def _object(text: str) -> dict[str, Any]:
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


async def _spec(target: Target, queue: Queue, task: str, key: str | None) -> TaskSpec:
    """The task as its code declares it; else one that the server has heard of, with arguments that nobody checks."""
    if target.has_code and queue.tasks:
        if task not in queue.tasks:
            raise NotFound(_unknown(queue.name, task, sorted(queue.tasks), "in this app"))
        return queue.tasks[task]
    known = await target.store.tasks(queue.name)
    if task not in known:
        raise NotFound(_unknown(queue.name, task, known, "known to the server"))
    if queue.settings.order == "key" and key is None:
        raise ConfigError(
            f'queue "{queue.name}" is ordered by key; give --key KEY, or --app MODULE:APP so that the task can make it'
        )
    return TaskSpec(task, _elsewhere, Unchecked(task), "async", queue.settings.retry, None)


def _unknown(queue: str, task: str, known: list[str], where: str) -> str:
    return f'queue "{queue}": no task "{task}" is {where}; there is: {", ".join(known) or "none"}'


class Unchecked(Signature):
    """The arguments of a task whose code is not here: any object will do, its worker checks it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parameters = ()

    def encode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = PAYLOAD_LIMIT
    ) -> tuple[bytes, Any]:
        payload = msgspec.json.encode(kwargs)
        if len(payload) > limit:
            raise TooLarge(
                f'task "{self.name}": its arguments take {len(payload):,} bytes, the limit is {limit:,}'
            )
        return payload, None

    def decode_result(self, encoded: bytes) -> Any:
        return msgspec.json.decode(encoded)


async def _elsewhere() -> None:
    """Stands for a function that only the worker has."""
