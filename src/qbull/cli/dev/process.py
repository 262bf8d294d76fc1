"""`qbull dev`: one version of the code at work. `dev` starts such a process at each change; it is the parent of a worker and serves the API.

It loads the app, sees that the server takes what the app declares, starts its worker, and says over its line when all that is done:
only then is the version before it told to end, and when that one reads nothing any more, this one says so too. It works
while the line is open. When the line closes, because it is the next one's turn or because `dev` is gone, whatever ended it,
running jobs have their time and everything ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import click
import msgspec

import qbull
from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.cli.dev.report import LoadReport, report_of
from qbull.cli.worker import WorkerOptions, make_supervisor, new_pod
from qbull.core.sharing import Sharing
from qbull.errors import QbullError, ServerError
from qbull.observe.log import one_line, set_up_logging
from qbull.store.connection.address import Address
from qbull.store.verbs.workers import RegisteredWorker
from qbull.worker.actor import start_actor, stop_actors

log = logging.getLogger("qbull.dev")

TAKEOVER_POLL_SECONDS = 0.02
"""Seconds between two looks at who reads, while a version takes over from another."""


class StartMessage(msgspec.Struct):
    """What it is told when it is its turn. `before` is the pod of the version that is told to end."""

    password: str
    before: str


@click.command(hidden=True)
@click.argument("app_path")
@click.option("--line", type=int, required=True)
@click.option("--listening", type=int, required=True)
@click.option("--grace", type=float, required=True)
def dev_process(app_path: str, line: int, listening: int, grace: float) -> None:
    """One version of the code under `qbull dev`."""
    parent = ParentLink(socket.socket(fileno=line))
    sock = socket.socket(fileno=listening)
    try:
        app = load_app(app_path)
        app._assignments()
        qbull.asgi(app)
    except QbullError as error:
        parent.tell(report_of(error))
        sys.exit(1)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    for noisy in (
        "uvicorn",
        "qbull.supervisor",
    ):  # they speak of each start and end, of which there are many here
        logging.getLogger(noisy).setLevel(logging.WARNING)
    version = RunningVersion(app, WorkerOptions(app_path, grace, Sharing()), sock, parent)
    sys.exit(asyncio.run(version.run()))


class ParentLink:
    """The line to `dev`. A thread reads it, so that its end is heard while an import hangs."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._loop: asyncio.AbstractEventLoop | None = None
        self._go: asyncio.Future[StartMessage] | None = None
        self.gone = asyncio.Event()
        threading.Thread(target=self._follow, name="qbull-line", daemon=True).start()

    def attend(self) -> None:
        """From now on something runs that has to be ended."""
        self._loop = asyncio.get_running_loop()
        self._go = self._loop.create_future()

    def tell(self, report: LoadReport) -> None:
        with suppress(OSError):  # it is gone, and that is heard
            self._line.sendall(msgspec.json.encode(report) + b"\n")

    async def go(self, report: LoadReport) -> StartMessage:
        """Say that all is ready, and wait for the word to take over."""
        assert self._go is not None
        self.tell(report)
        return await self._go

    def _follow(self) -> None:
        with self._line.makefile("rb") as said, suppress(OSError):
            word = said.readline()
            if word and self._loop is not None and self._go is not None:
                self._loop.call_soon_threadsafe(
                    self._go.set_result, msgspec.json.decode(word, type=StartMessage)
                )
                said.read()
        if self._loop is None:
            os._exit(1)
        self._loop.call_soon_threadsafe(self.gone.set)


class RunningVersion:
    def __init__(self, app: App, orders: WorkerOptions, listening: socket.socket, parent: ParentLink) -> None:
        self._app = app
        self._orders = orders
        self._listening = listening
        self._parent = parent
        self._pod = new_pod()

    async def run(self) -> int:
        """Until the line closes; answers with the exit code."""
        self._parent.attend()
        async with self._app:
            try:
                await _declare(self._app)
            except QbullError as error:
                self._parent.tell(
                    LoadReport(one_line(str(error)), mendable=not isinstance(error, ServerError))
                )
                return 1
            supervisor = make_supervisor(self._app, self._orders, 1, self._pod)
            working = asyncio.create_task(supervisor.run())
            serving = asyncio.create_task(self._take_over_and_serve())
            gone = asyncio.create_task(self._parent.gone.wait())
            await asyncio.wait([working, serving, gone], return_when=asyncio.FIRST_COMPLETED)
            supervisor.stop()  # the API ends meanwhile, so that the next version answers from now on
            for task in (serving, gone):
                task.cancel()
            await asyncio.wait([working, serving])
            if not serving.cancelled():
                serving.result()
            return working.result()

    async def _take_over_and_serve(self) -> None:
        await self._until(lambda reading: self._pod in reading)
        server, queues = _server(self._app), [_described(self._app, name) for name in self._app.queues]
        go = await self._parent.go(LoadReport(pod=self._pod, server=server, queues=queues))
        from qbull.api.server import beside

        api = qbull.asgi(self._app, replace(self._app.environment.access, password=go.password))
        telling = start_actor(partial(_tell, self._app))
        try:
            async with beside(api, self._listening):
                await self._until(lambda reading: go.before not in reading)
                self._parent.tell(LoadReport())
                await asyncio.Event().wait()  # until it is cancelled
        finally:
            await stop_actors([telling])

    async def _until(self, holds: Callable[[set[str]], bool]) -> None:
        """Wait for something that the roster says of the pods that read."""
        store = self._app._client().store
        while True:
            if holds(_reading(await store.workers())):
                return
            await asyncio.sleep(TAKEOVER_POLL_SECONDS)


def _reading(members: dict[str, RegisteredWorker]) -> set[str]:
    """The pods with a worker that is not leaving."""
    return {
        member.pod
        for member in members.values()
        if any(not serving.leaving for serving in member.queues.values())
    }


async def _declare(app: App) -> None:
    """As the worker will do: what the server refuses is said before the version that works is told to end."""
    store = app._client().store
    for assignment in app._assignments():
        await store.register(assignment.settings, sorted(assignment.tasks))


async def _tell(app: App) -> None:
    """A line for each job that has ended. The worker says itself what failed; here is where."""
    async for event in app.events():
        if event.state == "completed":
            log.info('queue "%s": job %s (%s) completed', event.queue, event.id, event.task)
        elif event.state == "failed":
            info = await app.job(event.queue, event.id).info()
            for line in (info.stacktrace or "").splitlines() if info is not None else ():
                click.echo(f"  {one_line(line)}", err=True)


def _server(app: App) -> str:
    address = Address.parse(app.url)
    if address.directory is None:
        return address.shown
    return f"an embedded Valkey; its data are in {address.directory}"


def _described(app: App, name: str) -> str:
    queue = app.queues[name]
    schedules = sum(schedule.queue == name for schedule in app.declared.values())
    order = f", in order by {queue.settings.order}" if queue.settings.order else ""
    parts = [_count(len(queue.tasks), "task"), *([_count(schedules, "schedule")] if schedules else [])]
    return f"{name} ({', '.join(parts)}{order})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
