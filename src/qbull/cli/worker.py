"""`qbull worker`: run jobs. The command itself is the parent; `worker-process` is what it starts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

import click

from qbull.app import App
from qbull.cli.loading import load_app
from qbull.observe.log import set_up
from qbull.worker.board import Board
from qbull.worker.supervisor import Supervisor
from qbull.worker.worker import Worker


@click.command()
@click.argument("app_path", metavar="MODULE:APP")
@click.option("--queues", help="Serve only these, separated by commas.  [default: all]")
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    help="Jobs at a time of each queue in one process.  [default: as declared]",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds that running jobs have to end after SIGTERM.",
)
def worker(app_path: str, queues: str | None, processes: int, concurrency: int | None, grace: float) -> None:
    """Run jobs of the app in MODULE:APP until SIGTERM or Ctrl-C.

    \b
    Example:
      qbull worker shop.tasks:app --processes 4

    A first signal lets running jobs end and gives back what was not begun; a second one ends at once.
    """
    app = load_app(app_path)
    set_up(app.environment.log_format, app.environment.log_level)
    names = _names(queues)
    settings = [assignment.settings for assignment in app.assignments(names, concurrency)]
    served = ", ".join(queue.name for queue in settings)

    async def main() -> int:
        store = app.make_store()
        await store.patiently(store.open)
        click.echo(
            f"qbull worker: {processes} process{'es' * (processes > 1)} for {served}; Ctrl-C ends", err=True
        )
        supervisor = Supervisor(
            store,
            settings,
            process_command(app_path, grace, queues, concurrency),
            processes=processes,
            grace=grace,
            min_idle=app.environment.min_idle,
        )
        return await supervisor.run()

    sys.exit(asyncio.run(main()))


def process_command(
    app_path: str, grace: float, queues: str | None = None, concurrency: int | None = None
) -> Callable[[str, int, int], list[str]]:
    """How the supervisor starts a worker process."""
    fixed = ["--grace", str(grace)]
    if queues:
        fixed += ["--queues", queues]
    if concurrency:
        fixed += ["--concurrency", str(concurrency)]

    def command(id: str, board: int, life: int) -> list[str]:
        own = ["--id", id, "--board", str(board), "--life", str(life)]
        return [sys.executable, "-m", "qbull.cli.main", "worker-process", app_path, *own, *fixed]

    return command


@click.command(hidden=True)
@click.argument("app_path")
@click.option("--id", required=True)
@click.option("--board", type=int, required=True)
@click.option("--life", type=int, required=True)
@click.option("--grace", type=float, required=True)
@click.option("--queues")
@click.option("--concurrency", type=int)
def worker_process(
    app_path: str, id: str, board: int, life: int, grace: float, queues: str | None, concurrency: int | None
) -> None:
    """One worker process under a supervisor."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent passes on what is meant
    app = load_app(app_path)
    set_up(app.environment.log_format, app.environment.log_level)
    asyncio.run(_serve(app, id, board, life, grace, _names(queues), concurrency))


async def _serve(
    app: App, id: str, board: int, life: int, grace: float, queues: list[str] | None, concurrency: int | None
) -> None:
    assignments = app.assignments(queues, concurrency)
    slots = sum(assignment.settings.concurrency for assignment in assignments)
    min_idle = app.environment.min_idle
    worker = Worker(
        app.make_store,
        assignments,
        min_idle=min_idle,
        payload_limit=app.payload_limit,
        id=id,
        board=Board(board, slots),
        supervised=True,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _follow_parent(life, loop, stop, min_idle / 2)
    await worker.start()
    await stop.wait()
    # More of them change nothing: a service manager may signal the whole group, and the parent passes its own on.
    await worker.stop(grace)
    await app.close()


def _follow_parent(life: int, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, within: float) -> None:
    """When the parent dies nobody says "alive" for this process any more: it must be gone before others take over."""

    def watch() -> None:
        os.read(life, 1)  # nothing is ever written: this returns when the parent is gone
        loop.call_soon_threadsafe(stop.set)
        timer = threading.Timer(within, os._exit, args=[1])
        timer.daemon = True
        timer.start()

    threading.Thread(target=watch, name="qbull-life", daemon=True).start()


def _names(queues: str | None) -> list[str] | None:
    return [name.strip() for name in queues.split(",") if name.strip()] if queues else None
