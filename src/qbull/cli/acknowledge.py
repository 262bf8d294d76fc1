"""`qbull acknowledge`: say of a kind of error that somebody knows of it."""

from __future__ import annotations

import click

from qbull.cli.pause import by
from qbull.cli.target import Target, on_target, with_reason
from qbull.manage import acknowledge as known_errors
from qbull.store.audit import checked_author, default_author


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("fingerprint")
@click.option("--note", help="A note for others, such as who works on it.")
@click.option("--withdraw", is_flag=True, help="Show the error again like any other.")
@by
@with_reason
@on_target
def acknowledge(
    target: Target, queue_name: str, fingerprint: str, note: str | None, withdraw: bool, by: str | None
) -> None:
    """Acknowledge a kind of error, with a note.

    The dashboard shows the note, and lists the error last. The error needs attention again if it reappears
    after a quiet hour, or if it fails far more often than before.

    \b
    Example:
      qbull acknowledge email 6f1c0a2b9d3e --note "provider is down, ticket 4711"
      qbull acknowledge email 6f1c0a2b9d3e --withdraw
    """
    if withdraw == (note is not None):
        raise click.UsageError("expected --note or --withdraw, one of them")

    async def main() -> None:
        queue = await target.queue(queue_name)
        author = checked_author(by) if by is not None else default_author()
        if note is None:
            await known_errors.withdraw(queue, fingerprint, author)
        else:
            await known_errors.acknowledge(queue, fingerprint, note, author)
        click.echo("withdrawn" if note is None else "acknowledged")

    target.run(main)
