"""`qbull demo`: an embedded server, sample queues, a real worker, the dashboard, and a view of it. It leaves nothing behind.

The worker is the one of `qbull worker`: a supervisor in this process, with worker processes below it. So Ctrl-C and
SIGTERM are the supervisor's here too: the first one lets running jobs end, a second one ends at once.
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

from qbull.errors import QbullError
from qbull.observe.log import set_up_logging

if TYPE_CHECKING:
    from qbull.worker.process.supervisor import Supervisor

DEMO_GRACE_SECONDS = 3.0
INTERRUPTED_EXIT_CODE = 130


@click.command()
@click.option("--once", is_flag=True, help="Run a fixed workload to its end, print a summary, and end.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data here.  [default: nowhere]",
)
@click.option(
    "--processes", type=click.IntRange(1, 64), default=2, show_default=True, help="Worker processes."
)
def demo(once: bool, directory: Path | None, processes: int) -> None:
    """Show qbull at work, on a Valkey of its own.

    Sample queues with mail, payments in order, reports and reminders; a worker; the dashboard and a view of it until Ctrl-C.

    \b
    Example:
      qbull demo
      qbull demo --once
    """
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qbull-demo-")))
        log = _prepare(directory.absolute())
        with _errors_to(log):
            code = asyncio.run(_run(directory.absolute(), once, processes))
        if code == 1:
            click.echo("".join(log.read_text(errors="replace").splitlines(True)[-20:]), err=True, nl=False)
    sys.exit(code)


def _prepare(directory: Path) -> Path:
    """The worker processes import the demo's app: it finds its server in the environment, as any app does."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / "worker.log"
        log.touch()
    except OSError as error:
        raise QbullError(f"--dir {directory}: {error.strerror}") from None
    os.environ["QBULL_URL"] = f"embedded://{quote(str(directory / 'valkey'))}"
    return log


async def _run(directory: Path, once: bool, processes: int) -> int:
    from qbull.cli.demo.app import app  # reads the environment
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
            well = await _beside(supervisor, worker, run_once(directory))
            return INTERRUPTED_EXIT_CODE if well is None else 0 if well else 1
        click.echo(
            "an embedded Valkey, four queues and a worker are running; Ctrl-C ends them. From another terminal:"
        )
        click.echo(f"  QBULL_URL={app.url} QBULL_PREFIX={app.prefix} qbull jobs email --state failed\n")
        async with served(app) as said:
            click.echo(f"{said}\n")
            await _beside(supervisor, worker, _both(produce(), show()))
        click.echo("ended" if worker.result() == 0 else "ended at once")
        return 0


def _supervisor(processes: int) -> Supervisor:
    """As `qbull worker` has it."""
    from qbull.cli.demo.app import DEMO_APP_PATH, app
    from qbull.cli.worker import WorkerOptions, make_supervisor
    from qbull.core.sharing import Sharing

    return make_supervisor(app, WorkerOptions(DEMO_APP_PATH, DEMO_GRACE_SECONDS, Sharing()), processes)


async def _beside(
    supervisor: Supervisor, worker: asyncio.Task[int], doing: Coroutine[Any, Any, bool]
) -> bool | None:
    """Do something while the worker runs, then end the worker; None where a signal ended it before."""
    done = asyncio.create_task(doing)
    await asyncio.wait([worker, done], return_when=asyncio.FIRST_COMPLETED)
    if worker.done():
        done.cancel()
        await asyncio.wait([done])
        worker.result()
        return None
    supervisor.stop()
    await asyncio.wait([worker])
    worker.result()
    return done.result()


async def _both(*coroutines: Coroutine[Any, Any, None]) -> bool:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return True


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """What the worker processes log would be written across the view."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
