"""The `qbull` command. Each subcommand is imported when it is called, so that `qbull --help` is quick."""

from __future__ import annotations

import importlib
import sys

import click

from qbull.errors import QbullError

COMMANDS = {
    "worker": "qbull.cli.worker:worker",
    "worker-process": "qbull.cli.worker:worker_process",
}


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="qbull")
def qbull() -> None:
    """Background jobs for Python on Redis or Valkey: ordered by key, durable, fast."""


def main() -> None:
    try:
        qbull(prog_name="qbull")
    except QbullError as error:
        click.echo(f"qbull: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
