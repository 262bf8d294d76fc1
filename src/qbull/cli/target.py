"""Which server a command is about: the environment's, the one of --url, or the one of an app's code."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.config import read_environment
from qbull.errors import ConfigError
from qbull.queue import Queue
from qbull.store.connection.address import Address
from qbull.store.store import Store

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])


class Target:
    """An app to look at. Queues that its code does not declare are known from the server's registry."""

    def __init__(self, app: App, *, has_code: bool) -> None:
        self.app = app
        self.has_code = has_code

    @classmethod
    def of(cls, url: str | None, prefix: str | None, app_path: str | None) -> Target:
        if app_path is not None:
            if url is not None or prefix is not None:
                raise click.UsageError("--app has a server of its own; leave --url and --prefix away")
            return cls(load_app(app_path), has_code=True)
        _refuse_nowhere(url)
        return cls(App(url, prefix=prefix), has_code=False)

    @property
    def store(self) -> Store:
        """The server, without retries: a command says at once that it is unavailable."""
        return self.app._client().store.without_retry

    async def queue(self, name: str) -> Queue:
        await self.store.open()
        return self.app.queues.get(name) or Queue(self.app, await self.store.settings(name))

    async def queues(self) -> list[Queue]:
        await self.store.open()
        return [await self.queue(name) for name in await self.store.queues()]

    def run(self, command: Callable[[], Coroutine[Any, Any, A]]) -> A:
        async def main() -> A:
            async with self.app:
                return await command()

        return asyncio.run(main())


def on_target(command: F) -> F:
    """The options --url, --prefix and --app; the command gets a Target as its first argument."""

    @functools.wraps(command)
    def with_target(*, url: str | None, prefix: str | None, app_path: str | None, **rest: Any) -> Any:
        return command(Target.of(url, prefix, app_path), **rest)

    for option in (
        click.option(
            "-A", "--app", "app_path", metavar="MODULE:APP", help="The app whose server and tasks are meant."
        ),
        click.option("--prefix", help="What its names on the server begin with.  [default: QBULL_PREFIX]"),
        click.option(
            "--url",
            help="The server: redis://HOST:PORT/DB, redis+cluster://, redis+sentinel:// …  [default: QBULL_URL or REDIS_URL]",
        ),
    ):
        with_target = option(with_target)
    return with_target  # type: ignore[return-value]


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def _refuse_nowhere(url: str | None) -> None:
    """An app starts an embedded server where there is none; a look at nothing must not."""
    named = url or read_environment().url
    directory = Address.parse(named).directory if named else ".qbull"
    if directory is None or Path(directory).is_dir():
        return
    if named:
        raise ConfigError(f'server address "{named}": there is no directory "{directory}"')
    raise ConfigError("no server is named; set QBULL_URL or give --url redis://HOST:PORT/DB")
