"""`qbull fork`: run a durable job that has ended again from a step."""

from __future__ import annotations

from typing import Any

import click

from qbull.cli.enqueue import read_arguments, read_json
from qbull.cli.target import Target, on_target, with_reason
from qbull.core.fork import step_in


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("id")
@click.option("--step", metavar="STEP", help="Number or name of the first step that runs again.")
@click.option("--payload", metavar="JSON", help='New arguments by name; "-" reads them from standard input.')
@click.option(
    "--result", "results", metavar="STEP=JSON", multiple=True, help="Another result of a step before STEP."
)
@click.option("--new-id", help="Id of the new job. Of several forks with the same id, there is one job.")
@with_reason
@on_target
def fork(
    target: Target,
    queue_name: str,
    id: str,
    step: str | None,
    payload: str | None,
    results: tuple[str, ...],
    new_id: str | None,
) -> None:
    """Run an ended durable job again from one of its steps.

    \b
    Example:
      qbull fork orders 0199c2f0a1b27000b4a1f3c2d5e6f708
      qbull fork orders 0199c2f0a1b27000b4a1f3c2d5e6f708 --step 3 --payload '{"order": 8}'
      qbull fork orders 0199c2f0a1b27000b4a1f3c2d5e6f708 --step ship --result charge='"payment-8"'

    Steps before STEP are copied and do not run again. Without --step, it runs from the first step that is not
    recorded. "qbull job --steps" shows the numbers. Prints the id of the new job.
    """
    patched = dict(_read_result(text) for text in results)
    arguments = None if payload is None else read_arguments(payload)

    async def main() -> None:
        job = (await target.queue(queue_name)).job(id)
        first = None if step is None else step_in(step)
        click.echo((await job.fork(first, arguments=arguments, results=patched, id=new_id)).id)

    target.run(main)


def _read_result(text: str) -> tuple[int | str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--result {text}: expected a step and its result, such as charge='\"p-1\"'")
    return step_in(name), read_json(f"--result {name} is", value)
