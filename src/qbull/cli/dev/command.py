"""`qbull dev`: server, worker, API and dashboard of an app in one command, reloaded when its code changes.

This process watches the files, holds the port, and imports nothing of the app. Each version of the code runs
in its own process (process.py). A save starts the next version, which takes over once its worker is up; if it
cannot be loaded, the current version keeps running. The old version lets its running jobs finish while the
new one already works, as in a rolling deploy.
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

from qbull.cli.debug import run_debug_dev
from qbull.cli.dev.files import FileWatcher
from qbull.cli.dev.process import StartMessage
from qbull.cli.dev.report import LoadReport
from qbull.cli.duration import SecondsParam
from qbull.environment import password_variable, read_environment
from qbull.errors import ConfigError

DASHBOARD_HOST, DASHBOARD_PORT = "127.0.0.1", 3050
MAX_TRIED_PORTS = 20
MAX_REPORT_BYTES = 64 * 1024
EXTRA_EXIT_SECONDS = 15.0
"""Seconds beyond the grace of its jobs after which a process is killed. Its worker has ten of them."""
SIGNAL_REPEAT_SECONDS = 0.3
"""Seconds between two signals to processes that must stop at once."""


@click.command()
@click.argument("app_path", metavar="MODULE:APP")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Port of the dashboard, which is reachable from this machine only."
    f"  [default: {DASHBOARD_PORT}, or the next free port]",
)
@click.option(
    "--watch",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also watch the Python files in this directory; may be given several times.",
)
@click.option(
    "--grace",
    type=SecondsParam(),
    default=5.0,
    show_default=True,
    help="Seconds that running jobs have to finish after a change or Ctrl-C; then they are requeued.",
)
@click.option(
    "--debug",
    is_flag=True,
    help="Run jobs in this process, one at a time, so that breakpoint() works; do not reload.",
)
def dev(app_path: str, port: int | None, watch: tuple[Path, ...], grace: float, debug: bool) -> None:
    """Run MODULE:APP while you work on it; reload when you save.

    Starts a worker, the REST API and the dashboard.

    \b
    Example:
      qbull dev shop.tasks:app

    The server is that of the app or of QBULL_URL. If none is configured, qbull starts an embedded Valkey with
    its data in ./.qbull. If the code cannot be loaded, the error is printed and the previous version keeps
    running. Ctrl-C stops everything; a second one stops at once.
    """
    access = read_environment().access
    access.check_secrets()
    password = access.password
    with _listening(port) as listening:
        if debug:
            run_debug_dev(app_path, listening, password)
            return
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
    """A process with one version of the code. It works until we close our end of the socket to it."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pod: str = ""

    async def report(self) -> LoadReport:
        """Wait for its next report. A process that ends without one has failed."""
        message = await self.reader.readline()
        if message:
            return msgspec.json.decode(message, type=LoadReport)
        return LoadReport(
            f"its process ended while it loaded the app, with {_code(await self.process.wait())}"
        )

    def leave(self, grace: float) -> None:
        """Ask it to stop, and kill it if it takes too long: a thread of the app may never end."""
        self.writer.close()
        asyncio.get_running_loop().call_later(grace + EXTRA_EXIT_SECONDS, self.send, signal.SIGKILL)

    def send(self, name: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(name)


def login_link(port: int, code: str) -> str:
    """The address of the dashboard. The code is in the fragment, which no browser sends and no log has."""
    return f"http://{DASHBOARD_HOST}:{port}/ui/" + (f"#login={code}" if code else "")


class DevServer:
    """Starts a process for each version of the code. The newest one that can be loaded does the work."""

    def __init__(
        self, app_path: str, grace: float, listening: socket.socket, files: FileWatcher, password: str | None
    ) -> None:
        self._app_path = app_path
        self._grace = grace
        self._listening = listening
        self._files = files
        self._password = password or secrets.token_urlsafe(9)
        self._password_generated = password is None
        self._current: DevProcess | None = None
        self._processes: dict[DevProcess, asyncio.Task[None]] = {}
        """All processes that have not ended, each with the task that waits for its end."""
        self._queues: list[str] = []
        self._stop = asyncio.Event()
        self._at_once = False

    async def run(self) -> int:
        """Run until a signal. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(name, self._on_signal)
        reloading = asyncio.create_task(self._reload_on_changes())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([reloading, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (reloading, stopping):
            task.cancel()
        await asyncio.wait([reloading])
        await self._stop_all()
        if not reloading.cancelled():
            reloading.result()
        return 1 if self._at_once else 0

    async def _reload_on_changes(self) -> None:
        changed: list[Path] = []
        while True:
            _remove_bytecode(changed)
            newer = await self._reload(changed)
            changed = [*changed, *newer] if newer else await self._files.changed()

    async def _reload(self, changed: Sequence[Path]) -> list[Path]:
        """Load the current code and let it take over. Returns the files that changed again before that."""
        version = await self._start()
        report = await self._next_report(version)
        if isinstance(report, list):
            version.leave(self._grace)
            return report
        if report.error:
            self._print_error(changed, report)
            return []
        version.pod = report.pod
        self._take_over(version)
        done = await self._next_report(version)
        if isinstance(done, list):
            return done
        # After an error the process has ended, and _watch has printed that.
        if not done.error:
            self._print_loaded(changed, report, done)
        return []

    async def _next_report(self, version: DevProcess) -> LoadReport | list[Path]:
        """Wait for its next report, or for a change of files. Returns whichever comes first."""
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
            reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_REPORT_BYTES)
            fds = (theirs.fileno(), self._listening.fileno())
            options = ["--line", str(fds[0]), "--listening", str(fds[1]), "--grace", str(self._grace)]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "qbull.cli.main", "dev-process", self._app_path, *options),
                pass_fds=fds,
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                # Ctrl-C must reach this process only, which then decides what the others do.
                process_group=0,
            )
        version = DevProcess(process, reader, writer)
        self._processes[version] = asyncio.create_task(self._watch(version))
        return version

    async def _watch(self, version: DevProcess) -> None:
        """Wait for the end of a process, and report the end of the one that did the work."""
        code = await version.process.wait()
        version.writer.close()
        del self._processes[version]
        if version is self._current:
            self._current = None
            if not self._stop.is_set():
                _print(f"the app's process ended with {_code(code)}; it starts again at the next save")

    def _take_over(self, version: DevProcess) -> None:
        before, self._current = self._current, version
        if before is not None:
            before.leave(self._grace)
        start = StartMessage(self._password, before.pod if before is not None else "")
        version.writer.write(msgspec.json.encode(start) + b"\n")

    async def _stop_all(self) -> None:
        for version in self._processes:
            version.leave(self._grace)
        if self._processes:
            await asyncio.wait(self._processes.values())

    def _on_signal(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            _print(
                f"stopping; running jobs have {self._grace:.3g} s to finish, "
                "press Ctrl-C again to stop at once"
            )
        elif not self._at_once:
            self._at_once = True
            self._stop_at_once()

    def _stop_at_once(self) -> None:
        """Signal all processes until they have ended.

        One that is not stopping yet only starts to stop at the first.
        """
        for version in self._processes:
            version.send(signal.SIGINT)
        asyncio.get_running_loop().call_later(SIGNAL_REPEAT_SECONDS, self._stop_at_once)

    def _print_loaded(self, changed: Sequence[Path], report: LoadReport, done: LoadReport) -> None:
        queues = "; ".join(report.queues)
        if changed and self._queues:
            _print(f"{_names(changed)} changed, reloaded")
            if report.queues != self._queues:
                click.echo(f"  queues      {queues}", err=True)
        else:
            url = f"http://{DASHBOARD_HOST}:{self._listening.getsockname()[1]}"
            password = self._password if self._password_generated else f"as in {password_variable()}"
            link = login_link(self._listening.getsockname()[1], done.login_code)
            _print(self._app_path)
            for name, text in (
                ("dashboard", f"{url}/ui, user admin, password {password}"),
                ("log in", f"{click.style(link, bold=True)} (works once)"),
                ("REST API", f"{url}/api"),
                ("queues", queues),
                ("server", report.server),
                ("watching", f"{Path.cwd()}; reloads when you save a Python file, press Ctrl-C to stop"),
            ):
                click.echo(f"  {name:<11} {text}", err=True)
        self._queues = report.queues

    def _print_error(self, changed: Sequence[Path], report: LoadReport) -> None:
        """Print why the code cannot be loaded. At the first start, raise if no save can fix it."""
        if not self._queues and not report.fixable:
            raise ConfigError(report.error)
        subject = f"{_names(changed)} changed, but the app" if changed else "the app"
        rest = "the previous version keeps running" if self._current is not None else "nothing runs"
        _print(click.style(f"{subject} cannot be loaded; {rest} until the next save", fg="red"))
        for line in report.error.splitlines():
            click.echo(f"  {line}", err=True)


def _print(text: str) -> None:
    click.echo(f"qbull dev: {text}", err=True)


def _names(changed: Sequence[Path]) -> str:
    files = list(dict.fromkeys(changed))
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{os.path.relpath(files[0])}{more}"


def _code(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"


def _remove_bytecode(changed: Sequence[Path]) -> None:
    """Delete the compiled code of changed files.

    Python compares only the second of the source's last change, so it does not notice two saves within one
    second.
    """
    for file in changed:
        with suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(str(file))).unlink()


def _listening(port: int | None) -> socket.socket:
    """Listen on the given port; without one, on the default port or the next free one."""
    for candidate in (
        [port] if port is not None else [*range(DASHBOARD_PORT, DASHBOARD_PORT + MAX_TRIED_PORTS), 0]
    ):
        try:
            return socket.create_server((DASHBOARD_HOST, candidate), backlog=2048)
        except OSError as error:
            why = error
    raise ConfigError(
        f"cannot listen on {DASHBOARD_HOST}, port {port}: {why.strerror}; choose another with --port"
    )
