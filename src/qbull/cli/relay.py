"""`qbull relay`: ship jobs that were enqueued in PostgreSQL transactions to their queues."""

from __future__ import annotations

import asyncio
import signal

import click

from qbull.cli import database as databases
from qbull.cli.borrowed import report_borrowed
from qbull.cli.target import Target, on_target
from qbull.observe.log import set_up_logging
from qbull.worker.actor import start_actor, stop_actors


@click.command()
@databases.option
@on_target
def relay(target: Target, database: str | None) -> None:
    """Ship the PostgreSQL outbox to the queues until Ctrl-C.

    \b
    Example:
      qbull relay --app shop.tasks:app

    "qbull worker" also ships the outbox if its app has a database. Use a separate relay if the workers have
    no access to the database. Any number of relays may run. Without --app, the relay knows the queues that
    workers have registered.
    """
    app = target.app
    app.database = databases.configured_database(database) or app.database or databases.require_database(None)
    set_up_logging(app.environment.log_format, app.environment.log_level)

    async def main() -> None:
        stop = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        duties = [start_actor(duty) for duty in app._alongside()]
        report_borrowed("qbull relay", app, outbox=True)
        click.echo("qbull relay: shipping the outbox; press Ctrl-C to stop", err=True)
        await stop.wait()
        await stop_actors(duties)

    target.run(main)
