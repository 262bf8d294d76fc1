"""`qbull dev`: the process of one version of the code. `dev` starts it at each change; it runs a worker and
the API.

It loads the app, registers its queues on the server, starts its worker, and reports over a socket to `dev`
when all that is done. Only then does `dev` stop the previous version. When that one reads no more jobs, this
process reports that it has taken over. It works until the socket closes: because the next version has taken
over, or because `dev` is gone. Then running jobs have their grace period, and the process ends.
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

import click
import msgspec

import qbull
from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.cli.dev.report import LoadReport, report_of
from qbull.cli.worker import make_supervisor, new_pod
from qbull.cli.worker_options import WorkerOptions
from qbull.core.sharing import Sharing
from qbull.errors import QbullError, ServerError
from qbull.observe.log import one_line, set_up_logging
from qbull.store.connection.address import Address
from qbull.store.verbs.sessions import offer_login
from qbull.store.verbs.workers import RegisteredWorker

DEV_LOOP_WARNING_SECONDS = 0.2
"""Seconds for which a task may block the event loop before the worker warns, while somebody develops it."""
TAKEOVER_POLL_SECONDS = 0.02
"""Seconds between two polls of the worker registry while one version takes over from another."""


class StartMessage(msgspec.Struct):
    """The message that lets a version take over. `before` is the pod of the version that stops."""

    password: str
    before: str


@click.command(hidden=True)
@click.argument("app_path")
@click.option("--line", type=int, required=True)
@click.option("--listening", type=int, required=True)
@click.option("--grace", type=float, required=True)
def dev_process(app_path: str, line: int, listening: int, grace: float) -> None:
    """Run one version of the code under `qbull dev`.

    `line` and `listening` are file descriptors: of the socket to `dev`, and of the port that serves the API.
    """
    parent = ParentLink(socket.socket(fileno=line))
    sock = socket.socket(fileno=listening)
    try:
        app = load_app(app_path)
        app._assignments()
        qbull.asgi(app)
    except QbullError as error:
        parent.send(report_of(error))
        sys.exit(1)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    # These log each start and stop, of which there are many here.
    for noisy in ("uvicorn", "qbull.supervisor"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    version = RunningVersion(
        app,
        WorkerOptions(
            app_path, grace, Sharing(), job_log=app.environment.job_log, loop_warning=DEV_LOOP_WARNING_SECONDS
        ),
        sock,
        parent,
    )
    sys.exit(asyncio.run(version.run()))


class ParentLink:
    """The socket to `dev`.

    A thread reads it, so that the process notices its end even while an import hangs.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start: asyncio.Future[StartMessage] | None = None
        self.gone = asyncio.Event()
        threading.Thread(target=self._read, name="qbull-dev", daemon=True).start()

    def attach(self) -> None:
        """Use the running event loop.

        From now on the end of `dev` sets `gone`; before, it ends the process.
        """
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.create_future()

    def send(self, report: LoadReport) -> None:
        """Send a report. If `dev` is gone, the thread notices it."""
        with suppress(OSError):
            self._socket.sendall(msgspec.json.encode(report) + b"\n")

    async def wait_for_start(self, report: LoadReport) -> StartMessage:
        """Report that everything is ready, and wait for the message to take over."""
        assert self._start is not None
        self.send(report)
        return await self._start

    def _read(self) -> None:
        with self._socket.makefile("rb") as messages, suppress(OSError):
            message = messages.readline()
            if message and self._loop is not None and self._start is not None:
                self._loop.call_soon_threadsafe(
                    self._start.set_result, msgspec.json.decode(message, type=StartMessage)
                )
                messages.read()
        if self._loop is None:
            os._exit(1)
        self._loop.call_soon_threadsafe(self.gone.set)


class RunningVersion:
    """One version of the app at work: its supervisor, its worker and its API."""

    def __init__(
        self, app: App, options: WorkerOptions, listening: socket.socket, parent: ParentLink
    ) -> None:
        self._app = app
        self._options = options
        self._listening = listening
        self._parent = parent
        self._pod = new_pod()

    async def run(self) -> int:
        """Run until `dev` closes the socket. Returns the exit code."""
        self._parent.attach()
        async with self._app:
            try:
                await _register_queues(self._app)
            except QbullError as error:
                self._parent.send(
                    LoadReport(one_line(str(error)), fixable=not isinstance(error, ServerError))
                )
                return 1
            supervisor = make_supervisor(self._app, self._options, 1, self._pod)
            working = asyncio.create_task(supervisor.run())
            serving = asyncio.create_task(self._take_over_and_serve())
            gone = asyncio.create_task(self._parent.gone.wait())
            await asyncio.wait([working, serving, gone], return_when=asyncio.FIRST_COMPLETED)
            # The API stops at the same time, so that the next version answers from now on.
            supervisor.stop()
            for task in (serving, gone):
                task.cancel()
            await asyncio.wait([working, serving])
            if not serving.cancelled():
                serving.result()
            return working.result()

    async def _take_over_and_serve(self) -> None:
        await self._wait_for_pods(lambda pods: self._pod in pods)
        server, queues = _server(self._app), [_described(self._app, name) for name in self._app.queues]
        report = LoadReport(pod=self._pod, server=server, queues=queues)
        start = await self._parent.wait_for_start(report)
        from qbull.api.server import beside

        api = qbull.asgi(self._app, replace(self._app.environment.access, password=start.password))
        async with beside(api, self._listening):
            await self._wait_for_pods(lambda pods: start.before not in pods)
            first = not start.before
            code = await offer_login(self._app._client().store) if first else ""
            self._parent.send(LoadReport(login_code=code))
            # Serve until this task is cancelled.
            await asyncio.Event().wait()

    async def _wait_for_pods(self, holds: Callable[[set[str]], bool]) -> None:
        """Wait until a condition holds for the pods that read jobs, according to the worker registry."""
        store = self._app._client().store
        while True:
            if holds(_reading_pods(await store.workers())):
                return
            await asyncio.sleep(TAKEOVER_POLL_SECONDS)


def _reading_pods(workers: dict[str, RegisteredWorker]) -> set[str]:
    """Return the pods with a worker that is not leaving."""
    return {
        worker.pod
        for worker in workers.values()
        if any(not serving.leaving for serving in worker.queues.values())
    }


async def _register_queues(app: App) -> None:
    """Register the queues as the worker will do, so that a refusal is reported while the old version still
    works.
    """
    store = app._client().store
    for assignment in app._assignments():
        await store.register(assignment.settings, sorted(assignment.tasks))


def _server(app: App) -> str:
    address = Address.parse(app.url)
    if address.directory is None:
        return address.shown
    return f"embedded Valkey with its data in {address.directory}"


def _described(app: App, name: str) -> str:
    queue = app.queues[name]
    schedules = sum(schedule.queue == name for schedule in app.declared.values())
    order = f", in order by {queue.settings.order}" if queue.settings.order else ""
    parts = [_count(len(queue.tasks), "task"), *([_count(schedules, "schedule")] if schedules else [])]
    return f"{name} ({', '.join(parts)}{order})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
