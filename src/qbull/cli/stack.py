"""`qbull stack`: where the task of a running job is."""

from __future__ import annotations

import click

from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import lines_of, print_json
from qbull.manage.stack import STACK_TIMEOUT_SECONDS, read_stack
from qbull.views.jobs import StackShape
from qbull.views.shape import to_plain, view_of


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("id")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 60, min_open=True),
    default=STACK_TIMEOUT_SECONDS,
    show_default=True,
    help="Seconds to wait for the worker.",
)
@on_target
@as_json
def stack(target: Target, queue_name: str, id: str, timeout: float, as_json: bool) -> None:
    """Show where the task of a running job is.

    Its worker answers with the stack of the coroutine, the thread or the process that runs the task. The job
    goes on meanwhile.

    \b
    Example:
      qbull stack reports 0199c2f0a1b27000b4a1f3c2d5e6f708

    With --json: {"worker", "kind", "stack"}.
    """

    async def main() -> None:
        report = await read_stack(await target.queue(queue_name), id, timeout)
        if as_json:
            print_json(to_plain(view_of(StackShape, report)))
            return
        click.echo(f"{report.kind} in worker {report.worker}", err=True)
        for line in lines_of(report.stack):
            click.echo(line)

    target.run(main)
