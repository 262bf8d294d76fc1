"""`qbull dev`: one version of the code at work. `dev` starts such a process at each change; it serves the API and is the parent of a worker.

It loads the app, sees that the server takes what the app declares, and says over its line how that went: only then is the
version before it told to end. It works while the line is open. When the line closes, because it is the next one's turn or
because `dev` is gone, whatever ended it, running jobs have their time and everything ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from dataclasses import replace
from functools import partial

import click
import msgspec

import qbull
from qbull.app import App
from qbull.cli.dev_report import Report, report_of
from qbull.cli.loading import load_app
from qbull.cli.worker import Orders, make_supervisor
from qbull.config import Sharing
from qbull.errors import QbullError, ServerError
from qbull.observe.log import one_line, set_up
from qbull.store.address import Address
from qbull.worker.actor import end, start

log = logging.getLogger("qbull.dev")


class Go(msgspec.Struct):
    """What it is told when it is to begin."""

    password: str


@click.command(hidden=True)
@click.argument("app_path")
@click.option("--line", type=int, required=True)
@click.option("--listening", type=int, required=True)
@click.option("--grace", type=float, required=True)
def dev_process(app_path: str, line: int, listening: int, grace: float) -> None:
    """One version of the code under `qbull dev`."""
    parent = Parent(socket.socket(fileno=line))
    sock = socket.socket(fileno=listening)
    try:
        app = load_app(app_path)
        app.assignments()
        qbull.asgi(app)
    except QbullError as error:
        parent.tell(report_of(error))
        sys.exit(1)
    set_up(app.environment.log_format, app.environment.log_level)
    for noisy in (
        "uvicorn",
        "qbull.supervisor",
    ):  # they speak of each start and end, of which there are many here
        logging.getLogger(noisy).setLevel(logging.WARNING)
    sys.exit(asyncio.run(_run(app, Orders(app_path, grace, Sharing()), sock, parent)))


class Parent:
    """The line to `dev`. A thread reads it, so that its end is heard while an import hangs."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._loop: asyncio.AbstractEventLoop | None = None
        self._go: asyncio.Future[Go] | None = None
        self.gone = asyncio.Event()
        threading.Thread(target=self._follow, name="qbull-line", daemon=True).start()

    def tell(self, report: Report) -> None:
        self._line.sendall(msgspec.json.encode(report) + b"\n")

    async def go(self, report: Report) -> Go:
        """Say that all is ready, and wait for the word to begin."""
        self._loop = asyncio.get_running_loop()
        self._go = self._loop.create_future()
        self.tell(report)
        return await self._go

    def _follow(self) -> None:
        with self._line.makefile("rb") as said:
            word = said.readline()
            if not word or self._loop is None or self._go is None:
                os._exit(1)  # nothing was begun
            self._loop.call_soon_threadsafe(self._go.set_result, msgspec.json.decode(word, type=Go))
            said.read()
        self._loop.call_soon_threadsafe(self.gone.set)


async def _run(app: App, orders: Orders, listening: socket.socket, parent: Parent) -> int:
    async with app:
        try:
            await _declare(app)
        except QbullError as error:
            parent.tell(Report(one_line(str(error)), mendable=not isinstance(error, ServerError)))
            return 1
        ready = Report(server=_server(app), queues=[_described(app, name) for name in app.queues])
        go = await parent.go(ready)
        return await _work(app, orders, listening, parent.gone, go.password)


async def _declare(app: App) -> None:
    """As the worker will do: what the server refuses is said before the version that works is told to end."""
    store = app.client().store
    for assignment in app.assignments():
        await store.patiently(partial(store.register, assignment.settings, sorted(assignment.tasks)))


async def _work(
    app: App, orders: Orders, listening: socket.socket, gone: asyncio.Event, password: str
) -> int:
    from qbull.api.server import beside

    supervisor = make_supervisor(app, orders, processes=1)
    working = asyncio.create_task(supervisor.run())
    ending = asyncio.create_task(gone.wait())
    telling = start(partial(_tell, app))
    async with beside(qbull.asgi(app, replace(app.environment.access, password=password)), listening):
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
        supervisor.stop()  # the API ends meanwhile, so that the next version answers from now on
        await end([telling])
    ending.cancel()
    return await working


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
