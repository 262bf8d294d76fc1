"""The `qbull` command. Each subcommand is imported when it is called.

Every error that a user can cause ends here as one line on stderr and an exit code: 1 if the command failed,
2 if it was called with wrong arguments, 130 after Ctrl-C.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from qbull.errors import QbullError
from qbull.observe.log import one_line

COMMANDS = {
    "demo": "qbull.cli.demo.command:demo",
    "init": "qbull.cli.init:init",
    "dev": "qbull.cli.dev.command:dev",
    "dev-process": "qbull.cli.dev.process:dev_process",
    "worker": "qbull.cli.worker:worker",
    "worker-process": "qbull.cli.worker:worker_process",
    "queues": "qbull.cli.queues:queues",
    "stats": "qbull.cli.queues:stats",
    "jobs": "qbull.cli.jobs:jobs",
    "job": "qbull.cli.jobs:job",
    "workers": "qbull.cli.workers:workers",
    "partitions": "qbull.cli.partitions:partitions",
    "repartition": "qbull.cli.repartition:repartition",
    "schedules": "qbull.cli.schedules:schedules",
    "run": "qbull.cli.schedules:run",
    "enqueue": "qbull.cli.enqueue:enqueue",
    "pause": "qbull.cli.live_settings:pause",
    "resume": "qbull.cli.live_settings:resume",
    "configure": "qbull.cli.live_settings:configure",
    "reset": "qbull.cli.live_settings:reset",
    "settings": "qbull.cli.live_settings:settings",
    "cancel": "qbull.cli.job_actions:cancel",
    "retry": "qbull.cli.job_actions:retry",
    "promote": "qbull.cli.job_actions:promote",
    "remove": "qbull.cli.job_actions:remove",
    "failures": "qbull.cli.dead_letters:failures",
    "redrive": "qbull.cli.dead_letters:redrive",
    "clean": "qbull.cli.dead_letters:clean",
    "alerts": "qbull.cli.alerts:alerts",
    "serve": "qbull.cli.serve:serve",
    "token": "qbull.cli.token:token",
    "relay": "qbull.cli.relay:relay",
    "migrate": "qbull.cli.migrate:migrate",
    "acl": "qbull.cli.acl:print_acl",
    "drain": "qbull.cli.drain:drain",
    "doctor": "qbull.cli.doctor.command:doctor",
}

INTERRUPTED_EXIT_CODE = 130
MAX_CLI_MESSAGE_CHARS = 800
"""Longest error message in characters. The message may quote an argument of any length."""


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
        visible = one_line(message).encode(errors="backslashreplace").decode()
        click.echo(f"qbull: {_shortened(visible)}", err=True)
    sys.exit(code)


def _shortened(line: str) -> str:
    """Cut the middle out of a long message: the fact is at its start, the remedy at its end."""
    if len(line) <= MAX_CLI_MESSAGE_CHARS:
        return line
    half = MAX_CLI_MESSAGE_CHARS // 2
    return f"{line[:half]} … {line[-half:]}"


def _error_text(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text += f'; see "{error.ctx.command_path} --help"'
    return text


if __name__ == "__main__":
    main()
