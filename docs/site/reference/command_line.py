"""The command line: from the commands themselves."""

from __future__ import annotations

import inspect
import textwrap

import click

from qbull.cli.main import COMMAND_GROUPS
from qbull.cli.main import qbull as command_line
from reference.cells import code, table


def page() -> str:
    context = click.Context(command_line, info_name="qbull")
    parts = []
    for title, group in COMMAND_GROUPS.items():
        found = {name: command_line.get_command(context, name) for name in group}
        shown = {name: command for name, command in found.items() if command and not command.hidden}
        if shown:
            parts.append(f"## {title}\n")
        for name, command in shown.items():
            parts += list(_of(command, click.Context(command, info_name=name, parent=context)))
    return (
        "# Command line\n\n`--help` prints the same for every command. An error is one line on stderr. Exit codes: 1 if the "
        "command failed, 2 if it was called with wrong arguments, 130 after Ctrl-C.\n\n" + "\n".join(parts)
    )


def _of(command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lead, _, rest = inspect.cleandoc(command.help or "").partition("\b\nExample:\n")
    example, _, after = rest.partition("\n\n")
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    records = [record for record in (one.get_help_record(context) for one in options) if record]
    rows = [(code(names), meaning) for names, meaning in records]
    made = f"### {context.command_path}\n\n```text\n{usage}\n```\n\n{lead.strip()}\n"
    if example:
        made += f"\n```sh\n{textwrap.dedent(example).strip()}\n```\n\n{after}\n"
    if rows:
        made += "\n" + table(("option", "meaning"), rows)
    below = [made]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                below += _of(inner, click.Context(inner, info_name=name, parent=context))
    return below
