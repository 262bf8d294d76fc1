"""Which PostgreSQL a command is about: the environment's, or the one of --database."""

from __future__ import annotations

import click

from qbull.config import check_database, read_environment
from qbull.errors import ConfigError

option = click.option(
    "--database",
    metavar="URL",
    help="postgresql://USER:PASSWORD@HOST:PORT/NAME  [default: QBULL_DATABASE_URL or DATABASE_URL]",
)


def named(database: str | None) -> str | None:
    if database is not None:
        return check_database(database, "--database")
    return read_environment().database


def needed(database: str | None) -> str:
    found = named(database)
    if found is None:
        raise ConfigError("no database is named; set QBULL_DATABASE_URL or give --database postgresql://…")
    return found
