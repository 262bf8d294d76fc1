"""`qbull move`: bring queues to another server, with everything that is in them."""

from __future__ import annotations

import sys

import click

from qbull.app import App
from qbull.cli.duration import SecondsParam
from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import print_json, print_table
from qbull.manage.server_move import MovableQueue, ServerMove
from qbull.store import audit
from qbull.store.connection.address import Address


@click.command()
@click.option("--to", required=True, metavar="URL", help="Address of the other server.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Queue to move; may be given several times.  [default: all queues of the prefix]",
)
@click.option(
    "--wait",
    type=SecondsParam(),
    default=60.0,
    show_default=True,
    help="Seconds that running jobs have to end. Until then nothing is moved.",
)
@click.option("--dry-run", is_flag=True, help="Only check whether the queues can be moved.")
@as_json
@with_reason
@on_target
def move(target: Target, to: str, queues: tuple[str, ...], wait: float, dry_run: bool, as_json: bool) -> None:
    """Move queues with all their jobs to another server.

    Producers and workers may run meanwhile. The queues are paused, running jobs end, and each partition moves
    in one step. From then on the old server refuses jobs of the queue, and its error names the new address.
    You can stop this command at any time and run it again.

    \b
    Example:
      qbull move --to redis://new:6379/0 --dry-run
      qbull move --to redis://new:6379/0 --wait 10m

    The exit code is 1 if a queue has not moved. With --json: {"to", "dryRun", "queues": [{"queue", "jobs",
    "running", "done"}], "left": [queue]}.
    """
    address = Address.parse(to).shown

    async def main() -> tuple[list[MovableQueue], list[str]]:
        async with App(to, prefix=target.app.prefix) as other:
            moving = ServerMove(target.app, other, queues)
            found = await moving.check()
            if dry_run:
                return found, []
            names = [one.queue for one in found]
            async with audit.entry(target.store, "move queues", address, queues=names):
                return found, await moving.run(wait, lambda line: click.echo(f"qbull: {line}", err=True))

    found, left = target.run(main)
    if as_json:
        shown = [
            {"queue": one.queue, "jobs": one.jobs, "running": one.running, "done": one.done} for one in found
        ]
        print_json({"to": address, "dryRun": dry_run, "queues": shown, "left": left})
    else:
        _print(found, left, address, dry_run)
    sys.exit(1 if left else 0)


def _print(found: list[MovableQueue], left: list[str], address: str, dry_run: bool) -> None:
    if found:
        state = {True: "moved before", False: "can move" if dry_run else "moved"}
        rows = [
            [one.queue, one.jobs, one.running, "stays" if one.queue in left else state[one.done]]
            for one in found
        ]
        print_table(("queue", ">jobs", ">running", "state"), rows)
    if left:
        click.echo(
            f"qbull: {len(left)} queues stay, because jobs still run. "
            "Run it again with a longer --wait, or cancel these jobs.",
            err=True,
        )
    elif not dry_run:
        click.echo(f"all queues are at {address}; start producers and workers with this address", err=True)
