"""`qbull migrate`: create or upgrade qbull's tables in PostgreSQL."""

from __future__ import annotations

import click

from qbull.cli import database
from qbull.cli.terminal import print_json


@click.command()
@click.option("--plan", is_flag=True, help="List the pending migrations without applying them.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL instead of running it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")
@database.option
def migrate(plan: bool, as_sql: bool, as_json: bool, database: str | None) -> None:
    """Create or upgrade qbull's tables in PostgreSQL.

    \b
    Example:
      qbull migrate --plan
      qbull migrate
      qbull migrate --sql > qbull.sql

    Migrations that were applied before are skipped, so every deployment can run this command. Migrations only
    add to the tables, so the previous release keeps working. Without a database, --sql prints all migrations.
    With --json: {"applied": bool, "migrations": [{"number", "name"}]}.
    """
    from qbull.cli.database import configured_database, require_database
    from qbull.postgres import schema

    if as_sql:
        url = configured_database(database)
        for migration in schema.pending(url) if url is not None else schema.migrations():
            click.echo(migration.script)
        return
    url = require_database(database)
    migrations = schema.pending(url) if plan else schema.migrate(url)
    if as_json:
        listed = [{"number": migration.number, "name": migration.name} for migration in migrations]
        print_json({"applied": not plan, "migrations": listed})
        return
    for migration in migrations:
        click.echo(f"{migration.number} {migration.name}: {'pending' if plan else 'applied'}")
    if not migrations:
        click.echo("nothing to do: the tables are up to date")
