"""Borrowed variables: names without QBULL_ that give a setting and may belong to another program.

A command that uses one reports it at its start.
"""

from __future__ import annotations

import click

from qbull.app import App

BORROWED_PASSWORD = (
    "the password of the dashboard is that of ADMIN_PASSWORD. "  # noqa: S105 - no password
    "If it belongs to another program, set QBULL_PASSWORD"
)
BORROWED_SLACK = (
    "alerts go to SLACK_WEBHOOK_URL. If it belongs to another program, set QBULL_SLACK_WEBHOOK_URL to yours"
)
BORROWED_DATABASE = (
    "the outbox is read from DATABASE_URL. If it belongs to another program, "
    "set QBULL_DATABASE_URL, or App(database=…)"
)


def report_borrowed(command: str, app: App, *, dashboard: bool = False, outbox: bool = False) -> None:
    """Print a line for each variable of another program that a command uses.

    Args:
        command: The command, as the lines name it.
        app: The app.
        dashboard: Whether the command serves the dashboard.
        outbox: Whether it moves the jobs of the outbox.
    """
    environment = app.environment
    lines = []
    if dashboard and environment.borrowed_password is not None:
        lines.append(BORROWED_PASSWORD)
    if environment.borrowed_slack is not None and app.alerts is environment.alerts:
        lines.append(BORROWED_SLACK)
    if outbox and environment.borrowed_database is not None and app.database == environment.database:
        lines.append(BORROWED_DATABASE)
    for line in lines:
        click.echo(f"{command}: {line}", err=True)
