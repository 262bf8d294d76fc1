"""`qbull dev`: server, worker, API and dashboard of an app in one command, with the newest version of its code.

This process watches the files, holds the port, and imports nothing of the app. Each version of the code is a process of its own
(dev_process.py): the next one is started at a save, and takes over once its worker is up; if it cannot be loaded, the one
before it goes on. Whoever leaves lets running jobs end while the next one already works, as in a rolling deploy.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from qbull.cli.dev.files import FileWatcher
from qbull.cli.dev.process import StartMessage
from qbull.cli.dev.report import LoadReport
from qbull.cli.duration import SecondsParam
from qbull.config import read_environment
from qbull.errors import ConfigError

DASHBOARD_HOST, DASHBOARD_PORT = "127.0.0.1", 3050
MAX_TRIED_PORTS = 20
MAX_REPORT_BYTES = 64 * 1024
EXTRA_EXIT_SECONDS = 15.0
"""Seconds beyond the grace of its jobs that a process has to end: its worker has ten."""
SIGNAL_REPEAT_SECONDS = 0.3
"""Seconds between two signals to those that are to end at once."""


@click.command()
@click.argument("app_path", metavar="MODULE:APP")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help=f"Where the dashboard is, on this machine only.  [default: {DASHBOARD_PORT}, or the next one that is free]",
)
@click.option(
    "--watch",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="A further directory whose Python files are watched, besides this one; may be repeated.",
)
@click.option(
    "--grace",
    type=SecondsParam(),
    default=5.0,
    show_default=True,
    help="Seconds that running jobs have to end after a change or Ctrl-C; then they are given back.",
)
def dev(app_path: str, port: int | None, watch: tuple[Path, ...], grace: float) -> None:
    """Run MODULE:APP while you work on it; reload when you save.

    A worker, the REST API and the dashboard in one.

    \b
    Example:
      qbull dev shop.tasks:app

    The server is the one of the app or of QBULL_URL; where none is named, a Valkey of its own in ./.qbull. Code that cannot be
    loaded is reported, and the version before it goes on. Ctrl-C ends everything; a second one ends at once.
    """
    password = read_environment().access.password
    with _listening(port) as listening:
        dev = DevServer(
            app_path,
            grace,
            listening,
            FileWatcher([Path.cwd(), *(path.absolute() for path in watch)]),
            password,
        )
        sys.exit(asyncio.run(dev.run()))


@dataclass(eq=False)
class DevProcess:
    """A process with one version of the code. It works while its line is open."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    line: asyncio.StreamWriter
    pod: str = ""

    async def report(self) -> LoadReport:
        said = await self.reader.readline()
        if said:
            return msgspec.json.decode(said, type=LoadReport)
        return LoadReport(
            f"its process ended while it loaded the app, with {_code(await self.process.wait())}"
        )

    def leave(self, grace: float) -> None:
        """End, with the jobs that run; a thread of the app that never ends does not hold it up for ever."""
        self.line.close()
        asyncio.get_running_loop().call_later(grace + EXTRA_EXIT_SECONDS, self.send, signal.SIGKILL)

    def send(self, name: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(name)


class DevServer:
    def __init__(
        self, app_path: str, grace: float, listening: socket.socket, files: FileWatcher, password: str | None
    ) -> None:
        self._app_path = app_path
        self._grace = grace
        self._listening = listening
        self._files = files
        self._password = password or secrets.token_urlsafe(9)
        self._made_password = password is None
        self._working: DevProcess | None = None
        self._keeping: dict[DevProcess, asyncio.Task[None]] = {}
        """All processes that have not ended, each with who waits for its end."""
        self._queues: list[str] = []
        self._stop = asyncio.Event()
        self._at_once = False

    async def run(self) -> int:
        """Until a signal; answers with the exit code."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(name, self._signalled)
        reloading = asyncio.create_task(self._reload_at_each_change())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([reloading, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (reloading, stopping):
            task.cancel()
        await asyncio.wait([reloading])
        await self._end_all()
        if not reloading.cancelled():
            reloading.result()
        return 1 if self._at_once else 0

    async def _reload_at_each_change(self) -> None:
        changed: list[Path] = []
        while True:
            _remove_bytecode(changed)
            newer = await self._try(changed)
            changed = [*changed, *newer] if newer else await self._files.changed()

    async def _try(self, changed: Sequence[Path]) -> list[Path]:
        """Load the code as it is now, and let it take over; answers with what was changed again before that."""
        version = await self._start()
        report = await self._hear(version)
        if isinstance(report, list):
            version.leave(self._grace)
            return report
        if report.error:
            self._complain(changed, report)
            return []
        version.pod = report.pod
        self._take_over(version)
        done = await self._hear(version)
        if isinstance(done, list):
            return done
        if not done.error:  # otherwise it has ended, and that was said
            self._welcome(changed, report)
        return []

    async def _hear(self, version: DevProcess) -> LoadReport | list[Path]:
        """What it says next, or what was changed before it said something."""
        reporting = asyncio.create_task(version.report())
        changing = asyncio.create_task(self._files.changed())
        try:
            await asyncio.wait([reporting, changing], return_when=asyncio.FIRST_COMPLETED)
            return reporting.result() if reporting.done() else changing.result()
        finally:
            reporting.cancel()
            changing.cancel()

    async def _start(self) -> DevProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, line = await asyncio.open_connection(sock=ours, limit=MAX_REPORT_BYTES)
            fds = (theirs.fileno(), self._listening.fileno())
            options = ["--line", str(fds[0]), "--listening", str(fds[1]), "--grace", str(self._grace)]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "qbull.cli.main", "dev-process", self._app_path, *options),
                pass_fds=fds,
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                process_group=0,  # Ctrl-C is for this process, which passes on what is meant
            )
        version = DevProcess(process, reader, line)
        self._keeping[version] = asyncio.create_task(self._keep(version))
        return version

    async def _keep(self, version: DevProcess) -> None:
        """See the end of a process."""
        code = await version.process.wait()
        version.line.close()
        del self._keeping[version]
        if version is self._working:
            self._working = None
            if not self._stop.is_set():
                _say(
                    f"the process that works and serves ended with {_code(code)}; it is started again at the next save"
                )

    def _take_over(self, version: DevProcess) -> None:
        before, self._working = self._working, version
        if before is not None:
            before.leave(self._grace)
        go = StartMessage(self._password, before.pod if before is not None else "")
        version.line.write(msgspec.json.encode(go) + b"\n")

    async def _end_all(self) -> None:
        for version in self._keeping:
            version.leave(self._grace)
        if self._keeping:
            await asyncio.wait(self._keeping.values())

    def _signalled(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            _say(f"ending; running jobs have {self._grace:.3g} s to end, a second Ctrl-C ends at once")
        elif not self._at_once:
            self._at_once = True
            self._end_at_once()

    def _end_at_once(self) -> None:
        """Until all have ended: one that has not heard yet that it is to end takes the first signal for that."""
        for version in self._keeping:
            version.send(signal.SIGINT)
        asyncio.get_running_loop().call_later(SIGNAL_REPEAT_SECONDS, self._end_at_once)

    def _welcome(self, changed: Sequence[Path], report: LoadReport) -> None:
        queues = "; ".join(report.queues)
        if changed and self._queues:
            _say(f"{_names(changed)} changed, reloaded")
            if report.queues != self._queues:
                click.echo(f"  queues      {queues}", err=True)
        else:
            url = f"http://{DASHBOARD_HOST}:{self._listening.getsockname()[1]}"
            password = self._password if self._made_password else "as in QUEUES_UI_PASS"
            _say(self._app_path)
            for name, text in (
                ("dashboard", f"{click.style(f'{url}/ui', bold=True)}, user admin, password {password}"),
                ("REST API", f"{url}/api"),
                ("queues", queues),
                ("server", report.server),
                ("watching", f"{Path.cwd()}; save a Python file and it is reloaded, Ctrl-C ends"),
            ):
                click.echo(f"  {name:<11} {text}", err=True)
        self._queues = report.queues

    def _complain(self, changed: Sequence[Path], report: LoadReport) -> None:
        """At the first start, what no save can mend ends the command."""
        if not self._queues and not report.mendable:
            raise ConfigError(report.error)
        what = f"{_names(changed)} changed, but the app" if changed else "the app"
        rest = "the version before goes on" if self._working is not None else "nothing runs"
        _say(click.style(f"{what} cannot be loaded; {rest} until the next save", fg="red"))
        for line in report.error.splitlines():
            click.echo(f"  {line}", err=True)


def _say(text: str) -> None:
    click.echo(f"qbull dev: {text}", err=True)


def _names(changed: Sequence[Path]) -> str:
    files = list(dict.fromkeys(changed))
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{os.path.relpath(files[0])}{more}"


def _code(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"


def _remove_bytecode(changed: Sequence[Path]) -> None:
    """Python knows compiled code by the second of its source's last change: two saves within one look the same to it."""
    for file in changed:
        with suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(str(file))).unlink()


def _listening(port: int | None) -> socket.socket:
    """On the port that was asked for; else on the usual one, or on the next that is free."""
    for tried in (
        [port] if port is not None else [*range(DASHBOARD_PORT, DASHBOARD_PORT + MAX_TRIED_PORTS), 0]
    ):
        try:
            return socket.create_server((DASHBOARD_HOST, tried), backlog=2048)
        except OSError as error:
            why = error
    raise ConfigError(
        f"cannot listen on {DASHBOARD_HOST}, port {port}: {why.strerror}; choose another with --port"
    )
