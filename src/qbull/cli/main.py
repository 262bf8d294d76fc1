"""The `qbull` command. Each subcommand is imported when it is called.

Every error that a user can cause ends here as one line on stderr and an exit code: 1 if the command failed,
2 if it was called with wrong arguments, 130 after Ctrl-C.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from qbull.cli.command_table import COMMAND_GROUPS, COMMANDS, SUMMARIES
from qbull.cli.error_line import error_line
from qbull.errors import QbullError, quoted_choices

INTERRUPTED_EXIT_CODE = 130


class LazyCommandGroup(click.Group):
    """A group that imports the module of a command only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. For an unknown one, suggest the names that are close to it."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib  # Here, because only this mistake needs it.

            close = difflib.get_close_matches(name, SUMMARIES, n=3, cutoff=0.65)
            meant = f"; did you mean {quoted_choices(close)}?" if close else ""
            raise click.UsageError(f'no such command "{name}"{meant}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by purpose."""
        width = formatter.width - 6 - max(map(len, SUMMARIES))
        for title, group in COMMAND_GROUPS.items():
            stand_ins = [click.Command(name, help=summary) for name, (_, summary) in group.items()]
            rows = [(each.name or "", each.get_short_help_str(width)) for each in stand_ins]
            with formatter.section(title):
                formatter.write_dl(rows, col_max=16)


@click.group(
    cls=LazyCommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="qbull")
@click.pass_context
def qbull(ctx: click.Context) -> None:
    """Background jobs for Python on Redis or Valkey: ordered by key, durable, fast.

    Commands connect to the server in QBULL_URL or REDIS_URL, or to the one given with --url.

    \b
    Example:
      qbull demo
      qbull init shop
      qbull dev shop.tasks:app
      qbull worker shop.tasks:app --processes 2
      qbull jobs email --state failed
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run the command line and exit."""
    try:
        _refuse_garbled(sys.argv[1:])
        code = qbull.main(prog_name="qbull", standalone_mode=False)
        sys.stdout.flush()
    except QbullError as error:
        _end(1, str(error))
    except click.ClickException as error:
        _end(error.exit_code, _error_text(error))
    except (click.Abort, KeyboardInterrupt):
        _end(INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has closed the pipe. Python must not write to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _end(1)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse_garbled(arguments: list[str]) -> None:
    """Refuse bytes that are not UTF-8.

    Python decodes them as lone surrogates, which nothing can print or store.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f'"{argument}" is not UTF-8; encode it as UTF-8') from None


def _end(code: int, message: str = "") -> None:
    if message:
        click.echo(error_line(message), err=True)
    sys.exit(code)


def _error_text(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text += f'{" See" if text.endswith("?") else "; see"} "{error.ctx.command_path} --help"'
    return text


if __name__ == "__main__":
    main()
