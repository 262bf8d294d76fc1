"""`qbull relay`: ship what was enqueued in transactions from PostgreSQL to the queue."""

from __future__ import annotations

import asyncio
import signal

import click

from qbull.cli import database as databases
from qbull.cli.target import Target, on_target
from qbull.observe.log import set_up_logging
from qbull.worker.actor import start_actor, stop_actors


@click.command()
@databases.option
@on_target
def relay(target: Target, database: str | None) -> None:
    """Ship the outbox in PostgreSQL to the queue, until Ctrl-C.

    \b
    Example:
      qbull relay --app shop.tasks:app

    "qbull worker" does the same where its app has a database; a relay of its own serves producers whose workers
    have none. Any number may run. Without --app, queues are known from their workers.
    """
    app = target.app
    app.database = databases.named(database) or app.database or databases.needed(None)
    set_up_logging(app.environment.log_format, app.environment.log_level)

    async def main() -> None:
        stop = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        duties = [start_actor(duty) for duty in app._alongside()]
        click.echo("qbull relay: ships the outbox; Ctrl-C ends", err=True)
        await stop.wait()
        await stop_actors(duties)

    target.run(main)
