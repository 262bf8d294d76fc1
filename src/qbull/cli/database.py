"""The PostgreSQL database that a command works on: from the environment, or from --database."""

from __future__ import annotations

import click

from qbull.config import check_database
from qbull.environment import read_environment
from qbull.errors import ConfigError

option = click.option(
    "--database",
    metavar="URL",
    help="Address of the database: postgresql://USER:PASSWORD@HOST:PORT/NAME"
    "  [default: QBULL_DATABASE_URL or DATABASE_URL]",
)


def configured_database(database: str | None) -> str | None:
    """Return the address of --database, else the one of the environment, if there is one."""
    if database is not None:
        return check_database(database, "--database")
    return read_environment().database


def require_database(database: str | None) -> str:
    """Return the address of the database, or raise ConfigError if none is configured."""
    address = configured_database(database)
    if address is None:
        raise ConfigError(
            "no database is configured; set QBULL_DATABASE_URL or pass --database postgresql://…"
        )
    return address
