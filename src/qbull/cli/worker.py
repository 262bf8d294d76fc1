"""`qbull worker`: run jobs. The command itself is the parent; `worker-process` is what it starts."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import threading
from dataclasses import dataclass, replace

import click
import msgspec

from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.cli.duration import SecondsParam
from qbull.core.sharing import SHARING_MODES, Sharing, make_sharing
from qbull.errors import ConfigError
from qbull.observe.log import set_up_logging
from qbull.worker.actor import stop_actors
from qbull.worker.process.crash_board import CrashBoard, board_slots_for
from qbull.worker.process.memory import trim_memory
from qbull.worker.process.supervisor import Supervisor, SupervisorSettings
from qbull.worker.worker import Supervision, Worker


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker process is told by its parent."""

    app: str
    grace: float
    sharing: Sharing
    queues: list[str] | None = None
    concurrency: int | None = None


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
    type=SecondsParam(),
    default=30.0,
    show_default=True,
    help="Seconds that running jobs have to end after SIGTERM.",
)
@click.option(
    "--sharing",
    type=click.Choice(SHARING_MODES),
    envvar="QBULL_SHARING",
    help="How the partitions of a queue are shared out over workers.  [default: auto; static with --instance-count]",
)
@click.option(
    "--partitions-per-pod",
    type=click.IntRange(1),
    envvar="PARTITIONS_PER_POD",
    help="The most partitions of a queue that this command reads, over all its processes.",
)
@click.option(
    "--instance-id", envvar="INSTANCE_ID", help="Which instance this is, from 0; worker-3 counts as 3."
)
@click.option(
    "--instance-count", type=click.IntRange(1), envvar="INSTANCE_COUNT", help="How many instances there are."
)
def worker(
    app_path: str,
    queues: str | None,
    processes: int,
    concurrency: int | None,
    grace: float,
    sharing: str | None,
    partitions_per_pod: int | None,
    instance_id: str | None,
    instance_count: int | None,
) -> None:
    """Run jobs of the app in MODULE:APP until SIGTERM or Ctrl-C.

    \b
    Example:
      qbull worker shop.tasks:app --processes 4

    A first signal lets running jobs end and gives back what was not begun; a second one ends at once. A server that is away
    is waited for, also at the start; one that refuses the password, or would lose jobs, ends it.
    """
    shared = make_sharing(sharing, partitions_per_pod, instance_id, instance_count)
    names = None if queues is None else _names(queues)
    app = load_app(app_path)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    orders = WorkerOptions(app_path, grace, shared, names, concurrency)

    async def main() -> int:
        supervisor = make_supervisor(app, orders, processes)
        if not await supervisor.reach():
            return 0
        served = ", ".join(a.settings.name for a in app._assignments(names))
        click.echo(
            f"qbull worker: {processes} process{'es' * (processes > 1)} for {served}; Ctrl-C ends", err=True
        )
        async with app:
            return await supervisor.run()

    sys.exit(asyncio.run(main()))


def _names(queues: str) -> list[str]:
    names = [name.strip() for name in queues.split(",") if name.strip()]
    if not names:
        raise ConfigError(f'--queues "{queues}": name at least one, or leave it away for all')
    return names


def new_pod() -> str:
    """The name that the worker processes of one parent have in common."""
    return f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(3)}"


def make_supervisor(app: App, orders: WorkerOptions, processes: int, pod: str | None = None) -> Supervisor:
    pod = pod or new_pod()
    settings = [assignment.settings for assignment in app._assignments(orders.queues, orders.concurrency)]

    def command(number: int, id: str, board: int, life: int) -> list[str]:
        told = msgspec.json.encode(
            replace(orders, sharing=orders.sharing.of_process(number, processes, pod))
        ).decode()
        options = ["--id", id, "--board", str(board), "--life", str(life)]
        return [sys.executable, "-m", "qbull.cli.main", "worker-process", told, *options]

    return Supervisor(
        app._make_store(),
        settings,
        command,
        SupervisorSettings(processes, orders.grace, app.environment.min_idle),
        alongside=app._alongside(),
    )


@click.command(hidden=True)
@click.argument("told")
@click.option("--id", required=True)
@click.option("--board", type=int, required=True)
@click.option("--life", type=int, required=True)
def worker_process(told: str, id: str, board: int, life: int) -> None:
    """One worker process under a supervisor."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent passes on what is meant
    orders = msgspec.json.decode(told, type=WorkerOptions)
    app = load_app(orders.app)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    asyncio.run(_serve(app, orders, id, board, life))


async def _serve(app: App, orders: WorkerOptions, id: str, board: int, life: int) -> None:
    assignments = app._assignments(orders.queues, orders.concurrency)
    slots = sum(board_slots_for(assignment.settings.concurrency) for assignment in assignments)
    min_idle = app.environment.min_idle
    worker = Worker(
        app._make_store,
        assignments,
        sharing=orders.sharing,
        min_idle=min_idle,
        supervision=Supervision(id, CrashBoard(board, slots)),
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # More of them change nothing: a service manager may signal the whole group, and the parent passes its own on.
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _follow_parent(life, loop, stop, min_idle / 2)
    spare = asyncio.create_task(trim_memory())
    starting, stopping = asyncio.create_task(worker.start()), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        await starting
        await stopping
    else:  # it waits for its server
        starting.cancel()
        await asyncio.wait([starting])
    await worker.stop(orders.grace)
    await stop_actors([spare])
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
