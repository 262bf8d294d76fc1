"""`qbull stream`: print the values that a job emits."""

from __future__ import annotations

import click
import msgspec

from qbull.cli.job_actions import queue_and_id
from qbull.cli.target import Target, on_target


@click.command()
@queue_and_id[0]
@queue_and_id[1]
@click.option("--after", type=click.IntRange(0), default=0, help="Leave out the values up to this number.")
@click.option("--numbers", is_flag=True, help="Print the number of each value in front of it.")
@on_target
def stream(target: Target, queue_name: str, id: str, after: int, numbers: bool) -> None:
    """Print the values that a job emits, until it ends.

    \b
    Example:
      qbull stream chat 0199c2f0a1b27000b4a1f3c2d5e6f708
      qbull stream chat 0199c2f0a1b27000b4a1f3c2d5e6f708 --numbers --after 20

    Prints one value as JSON in each line. With --numbers, a number and a tab come before each value. Values
    that were deleted because of the limits of the stream are counted on standard error.
    """

    async def main() -> None:
        values = (await target.queue(queue_name)).job(id).stream(after=after)
        missed = 0
        async for value in values:
            if values.missed > missed:
                click.echo(f"{values.missed - missed:,} earlier values were deleted", err=True)
                missed = values.missed
            shown = msgspec.json.encode(value).decode()
            click.echo(f"{values.position}\t{shown}" if numbers else shown)

    target.run(main)
