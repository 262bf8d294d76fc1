"""What a page is given: an app, a directory, what the tests have; and somebody else's service to speak to."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import qbull

Names = dict[str, Any]


class Given:
    """A page's surroundings: an app, a directory, what the tests have (a server, a database)."""

    def __init__(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, directory: Path
    ) -> None:
        self.fixture = request.getfixturevalue
        self.monkeypatch = monkeypatch
        self.directory = directory
        self.app = qbull.App()
        self.names: Names = {}
        """What the page has by now."""
        self.each: Callable[[str], Awaitable[Names]] | None = None
        """What happens before each statement: where a page does several things with one job, each has another."""
        self.fixtures: dict[str, Callable[[], Any]] = {}
        """Of the tests that a page has."""
        self.enough = asyncio.Event()
        self.stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Given:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stack.aclose()
        await self.app.close()
        await asyncio.to_thread(self.app.close_sync)

    async def until_enough(self, block: Coroutine[Any, Any, Any]) -> None:
        """Some blocks go on until their reader has seen enough."""
        running, enough = asyncio.ensure_future(block), asyncio.ensure_future(self.enough.wait())
        await asyncio.wait([running, enough], timeout=30, return_when=asyncio.FIRST_COMPLETED)
        enough.cancel()
        if not running.done():
            assert self.enough.is_set(), "the block has not ended"
            self.enough.clear()
            running.cancel()
            await asyncio.wait([running])
        elif error := running.exception():
            raise error

    async def play(self, test: Callable[..., Any]) -> None:
        """A test that a page has, with its fixtures."""
        async with contextlib.AsyncExitStack() as stack:
            arguments = {}
            for name in inspect.signature(test).parameters:
                fixture = self.fixtures.get(name)
                arguments[name] = self.names[name] if fixture is None else stack.enter_context(fixture())
            if inspect.iscoroutinefunction(test):
                await test(**arguments)
            else:
                await asyncio.to_thread(test, **arguments)

    def module(self, name: str, **names: Any) -> None:
        """A module of the reader's own."""
        made = types.ModuleType(name)
        vars(made).update(names)
        self.monkeypatch.setitem(sys.modules, name, made)

    def app_on(self, url: str) -> qbull.App:
        """An app on another server than that of the tests."""
        self.app = qbull.App(url)
        return self.app

    def soon(self, doing: Coroutine[Any, Any, Any]) -> None:
        """Something that happens beside the page, until its end."""
        task = asyncio.create_task(doing)
        self.stack.push_async_callback(asyncio.wait, [task])
        self.stack.callback(task.cancel)

    async def worker(self, **settings: Any) -> None:
        """Jobs of the app run from here on."""
        await self.stack.enter_async_context(self.app.worker(**settings))


@dataclass
class Answer:
    """What somebody else's service says."""

    status: int = 200
    id: str = "m1"
    ok: bool = True
    error: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": "1"}


class Service:
    """Somebody else's service."""

    async def get(self, url: str) -> Answer:
        return Answer()

    async def send_all(self, messages: list[Any]) -> list[Answer]:
        return [Answer() for _ in messages]

    async def insert_many(self, rows: list[Any]) -> None: ...
