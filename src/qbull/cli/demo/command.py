"""`qbull demo`: an embedded server, sample queues, a real worker, the dashboard and a live view. It leaves no
data.

The worker is that of `qbull worker`: a supervisor in this process with worker processes as its children. So
the supervisor handles Ctrl-C and SIGTERM here too: the first one lets running jobs finish, a second one stops
at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from qbull.cli.main import INTERRUPTED_EXIT_CODE
from qbull.errors import QbullError
from qbull.observe.log import set_up_logging

if TYPE_CHECKING:
    from qbull.worker.process.supervisor import Supervisor

DEMO_GRACE_SECONDS = 3.0


@click.command()
@click.option("--once", is_flag=True, help="Run a fixed workload, print a summary, and exit.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the data, which is then kept.  [default: a temporary directory]",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Number of worker processes.",
)
def demo(once: bool, directory: Path | None, processes: int) -> None:
    """Show qbull at work on an embedded Valkey.

    Runs sample queues with mails, ordered payments, reports and reminders, a worker, the dashboard and a live
    view until Ctrl-C.

    \b
    Example:
      qbull demo
      qbull demo --once
    """
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qbull-demo-")))
        log = _prepare(directory.absolute())
        with _stderr_to(log):
            code = asyncio.run(_run(directory.absolute(), once, processes))
        if code == 1:
            click.echo("".join(log.read_text(errors="replace").splitlines(True)[-20:]), err=True, nl=False)
    sys.exit(code)


def _prepare(directory: Path) -> Path:
    """Create the directory and point QBULL_URL at it: the worker processes import the demo's app, which reads
    it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / "worker.log"
        log.touch()
    except OSError as error:
        raise QbullError(f"--dir {directory}: {error.strerror}") from None
    os.environ["QBULL_URL"] = f"embedded://{quote(str(directory / 'valkey'))}"
    return log


async def _run(directory: Path, once: bool, processes: int) -> int:
    # The import reads the environment, so it must come after _prepare.
    from qbull.cli.demo.app import app
    from qbull.cli.demo.live import produce, show
    from qbull.cli.demo.once import run_once
    from qbull.cli.demo.serve import served

    set_up_logging("text", app.environment.log_level)
    async with app:
        await app._client().store.open()
        supervisor = _supervisor(processes)
        worker = asyncio.create_task(supervisor.run())
        if once:
            click.echo(f"running the sample workload on an embedded Valkey with {processes} worker processes")
            passed = await _run_beside(supervisor, worker, run_once(directory))
            return INTERRUPTED_EXIT_CODE if passed is None else 0 if passed else 1
        click.echo(
            "an embedded Valkey, four queues and a worker are running; press Ctrl-C to stop. "
            "From another terminal:"
        )
        click.echo(f"  QBULL_URL={app.url} QBULL_PREFIX={app.prefix} qbull jobs email --state failed\n")
        async with served(app) as message:
            click.echo(f"{message}\n")
            await _run_beside(supervisor, worker, _run_all(produce(), show()))
        click.echo("stopped" if worker.result() == 0 else "stopped at once")
        return 0


def _supervisor(processes: int) -> Supervisor:
    """Make a supervisor as `qbull worker` does."""
    from qbull.cli.demo.app import DEMO_APP_PATH, app
    from qbull.cli.worker import make_supervisor
    from qbull.cli.worker_options import WorkerOptions
    from qbull.core.sharing import Sharing

    return make_supervisor(
        app, WorkerOptions(DEMO_APP_PATH, DEMO_GRACE_SECONDS, Sharing(), job_log=False), processes
    )


async def _run_beside(
    supervisor: Supervisor, worker: asyncio.Task[int], coroutine: Coroutine[Any, Any, bool]
) -> bool | None:
    """Run a coroutine beside the worker, then stop the worker.

    Returns None if a signal stopped the worker first.
    """
    running = asyncio.create_task(coroutine)
    await asyncio.wait([worker, running], return_when=asyncio.FIRST_COMPLETED)
    if worker.done():
        running.cancel()
        await asyncio.wait([running])
        worker.result()
        return None
    supervisor.stop()
    await asyncio.wait([worker])
    worker.result()
    return running.result()


async def _run_all(*coroutines: Coroutine[Any, Any, None]) -> bool:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return True


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Send stderr to a file: the log lines of the worker processes would spoil the live view."""
    sys.stderr.flush()
    original = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)
