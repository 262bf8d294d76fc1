"""The server that a command works on: from the environment, from --url, or from an app's code."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.environment import read_environment
from qbull.errors import ConfigError
from qbull.queue import Queue
from qbull.store.audit import on_the_command_line
from qbull.store.connection.address import Address
from qbull.store.store import Store

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])

REASON = "qbull.reason"
"""The name of the reason in the context of a command."""


class Target:
    """The app that a command works on.

    Queues that its code does not declare come from the server's registry.
    """

    def __init__(self, app: App, *, has_code: bool) -> None:
        self.app = app
        self.has_code = has_code

    @classmethod
    def of(cls, url: str | None, prefix: str | None, app_path: str | None) -> Target:
        """Return the app of --app, or an app without code on the server of --url and --prefix."""
        if app_path is not None:
            if url is not None or prefix is not None:
                raise click.UsageError("--app brings its own server; omit --url and --prefix")
            return cls(load_app(app_path), has_code=True)
        _require_server(url)
        return cls(App(url, prefix=prefix), has_code=False)

    @property
    def store(self) -> Store:
        """The server, without retries: a command says at once that it is unavailable."""
        return self.app._client().store.without_retry

    async def queue(self, name: str) -> Queue:
        """Return a queue as the code declares it, else as the server knows it."""
        await self.store.open()
        return self.app.queues.get(name) or Queue(self.app, await self.store.settings(name))

    async def queues(self) -> list[Queue]:
        """Return all queues that the server knows."""
        await self.store.open()
        return [await self.queue(name) for name in await self.store.queues()]

    def run(self, command: Callable[[], Coroutine[Any, Any, A]]) -> A:
        """Run a coroutine function with the app open, in an event loop of its own.

        The audit log names the user of this process, and the reason of --reason.
        """
        given = click.get_current_context().meta

        async def main() -> A:
            async with self.app:
                return await command()

        with on_the_command_line(None, given.get(REASON, "")):
            return asyncio.run(main())


def on_target(command: F) -> F:
    """Add the options --url, --prefix and --app; the command gets a Target as its first argument."""

    @functools.wraps(command)
    def with_target(*, url: str | None, prefix: str | None, app_path: str | None, **rest: Any) -> Any:
        return command(Target.of(url, prefix, app_path), **rest)

    for option in (
        click.option(
            "-A", "--app", "app_path", metavar="MODULE:APP", help="App whose server and tasks to use."
        ),
        click.option("--prefix", help="Prefix of the app's keys on the server.  [default: QBULL_PREFIX]"),
        click.option(
            "--url",
            help="Address of the server: redis://HOST:PORT/DB, redis+cluster://, redis+sentinel:// …"
            "  [default: QBULL_URL or REDIS_URL]",
        ),
    ):
        with_target = option(with_target)
    return with_target  # type: ignore[return-value]


def _remember_reason(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    ctx.meta[REASON] = value or ""
    return value


with_reason = click.option(
    "--reason", expose_value=False, callback=_remember_reason, help="Why, for the audit log."
)
"""For commands that change something."""

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")


def _require_server(url: str | None) -> None:
    """Refuse to start a new embedded server, as an app would do, only to look at an empty one."""
    configured = url or read_environment().server_url()
    directory = Address.parse(configured).directory if configured else ".qbull"
    if directory is None or Path(directory).is_dir():
        return
    if configured:
        raise ConfigError(f'server address "{configured}": the directory "{directory}" does not exist')
    raise ConfigError("no server is configured; set QBULL_URL or pass --url redis://HOST:PORT/DB")
