"""`qbull migrate`: create or upgrade qbull's tables in PostgreSQL."""

from __future__ import annotations

import click

from qbull.cli import database
from qbull.cli.terminal import print_json


@click.command()
@click.option("--plan", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL of it for somebody else to run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@database.option
def migrate(plan: bool, as_sql: bool, as_json: bool, database: str | None) -> None:
    """Create or upgrade qbull's tables in PostgreSQL.

    \b
    Example:
      qbull migrate --plan
      qbull migrate
      qbull migrate --sql > qbull.sql

    What is there already is left alone, so it may run at every start of a deployment. Tables are only added to, so the
    release before works on with them. --sql without a database prints all of it. With --json:
    {"applied": bool, "migrations": [{"number", "name"}]}.
    """
    from qbull.cli.database import named, needed
    from qbull.postgres import schema

    if as_sql:
        url = named(database)
        for migration in schema.pending(url) if url is not None else schema.migrations():
            click.echo(migration.script)
        return
    url = needed(database)
    found = schema.pending(url) if plan else schema.migrate(url)
    if as_json:
        migrations = [{"number": migration.number, "name": migration.name} for migration in found]
        print_json({"applied": not plan, "migrations": migrations})
        return
    for migration in found:
        click.echo(f"{migration.number} {migration.name}: {'to be applied' if plan else 'applied'}")
    if not found:
        click.echo("nothing to do: the tables are up to date")
