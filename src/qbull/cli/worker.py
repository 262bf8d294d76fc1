"""`qbull worker`: run jobs.

The command itself is the supervisor; it starts `worker-process` as its children.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from qbull.app import DEFAULT_URL, App
from qbull.cli.app_loading import load_app
from qbull.cli.debug import run_debug_worker
from qbull.cli.duration import SecondsParam
from qbull.cli.size import SizeParam
from qbull.cli.worker_offer import with_offer_options
from qbull.config import shortest_min_idle
from qbull.core.demand import WorkerOffer
from qbull.core.sharing import SHARING_MODES, Sharing, make_sharing
from qbull.environment import (
    INSTANCE_COUNT_VARIABLES,
    INSTANCE_ID_VARIABLES,
    PARTITIONS_PER_POD_VARIABLES,
    TAKE_OVER_VARIABLE,
    systemd_settings,
)
from qbull.errors import ConfigError, LifespanError
from qbull.observe.log import set_up_logging
from qbull.store.connection.address import Address
from qbull.worker.actor import first_of, stop_actors
from qbull.worker.assignment import Assignment, check_static_sharing, with_offer
from qbull.worker.debugging import refuse_breakpoints
from qbull.worker.job_log import follow_jobs_in_log
from qbull.worker.loop_watch import LOOP_WARNING_SECONDS
from qbull.worker.process.channel import Leaving, TakeRole, open_channel
from qbull.worker.process.child import ProcessHandles, WorkerCommand
from qbull.worker.process.crash_board import CrashBoard, board_slots_for
from qbull.worker.process.memory import trim_memory
from qbull.worker.process.recycle import Recycler
from qbull.worker.process.restart_pause import START_FAILED_EXIT_CODE
from qbull.worker.process.service_status import ServiceStatus
from qbull.worker.process.supervisor import Supervisor, SupervisorSettings
from qbull.worker.supervisor_link import SupervisorLink
from qbull.worker.worker import Supervision, Worker

log = logging.getLogger("qbull.worker")
F = TypeVar("F", bound=Callable[..., Any])


class WorkerOptions(msgspec.Struct, frozen=True):
    """The options that the supervisor passes to a worker process."""

    app: str
    grace: float
    sharing: Sharing
    queues: list[str] | None = None
    concurrency: int | None = None
    job_log: bool = True
    loop_warning: float = LOOP_WARNING_SECONDS
    max_jobs: int | None = None
    max_memory_bytes: int | None = None
    offer: WorkerOffer | None = None
    """The labels and resources, if they are not those of the environment."""


def _with_sharing(command: F) -> F:
    """Add the options that decide which partitions this command reads; the command gets them as `sharing`."""

    @functools.wraps(command)
    def with_sharing(
        *,
        sharing: str | None,
        partitions_per_pod: int | None,
        instance_id: str | None,
        instance_count: int | None,
        take_over: int | None,
        **rest: Any,
    ) -> Any:
        shared = make_sharing(sharing, partitions_per_pod, instance_id, instance_count, take_over)
        return command(sharing=shared, **rest)

    for option in (
        click.option(
            "--take-over",
            type=click.IntRange(1),
            metavar="SECONDS",
            envvar=TAKE_OVER_VARIABLE,
            help="With static sharing, also read the partitions of an instance that has been gone this long.",
        ),
        click.option(
            "--instance-count",
            type=click.IntRange(1),
            envvar=INSTANCE_COUNT_VARIABLES,
            help="Number of instances.",
        ),
        click.option(
            "--instance-id",
            envvar=INSTANCE_ID_VARIABLES,
            help="Number of this instance, from 0; worker-3 is read as 3.",
        ),
        click.option(
            "--partitions-per-pod",
            type=click.IntRange(1),
            envvar=PARTITIONS_PER_POD_VARIABLES,
            help="Maximum number of partitions of a queue that this command reads in all its processes.",
        ),
        click.option(
            "--sharing",
            type=click.Choice(SHARING_MODES),
            envvar="QBULL_SHARING",
            help="How workers share the partitions of a queue."
            "  [default: auto; static with --instance-count]",
        ),
    ):
        with_sharing = option(with_sharing)
    return with_sharing  # type: ignore[return-value]


@click.command()
@click.argument("app_path", metavar="MODULE:APP")
@click.option("--queues", help="Queues to serve, separated by commas.  [default: all]")
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Number of worker processes.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    help="Number of jobs that each process runs at a time, per queue.  [default: as declared]",
)
@click.option(
    "--grace",
    type=SecondsParam(),
    default=25.0,
    show_default=True,
    help="Seconds that running jobs have to finish after SIGTERM.",
)
@click.option(
    "--job-log/--no-job-log",
    default=None,
    help="Log the start and the end of each job.  [default: log, except with QBULL_JOB_LOG=no]",
)
@click.option(
    "--max-jobs-per-process",
    "max_jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a process after it has started N jobs.",
)
@click.option(
    "--max-memory-per-process",
    "max_memory_bytes",
    type=SizeParam(),
    metavar="SIZE",
    help="Replace a process that uses more memory than this, such as 500MB or 2GB.",
)
@click.option(
    "--debug",
    is_flag=True,
    help="Run jobs in this process, one at a time and without timeouts, so that breakpoint() works.",
)
@with_offer_options
@_with_sharing
def worker(
    app_path: str,
    queues: str | None,
    processes: int,
    concurrency: int | None,
    grace: float,
    job_log: bool | None,
    max_jobs: int | None,
    max_memory_bytes: int | None,
    debug: bool,
    sharing: Sharing,
    offer: WorkerOffer,
) -> None:
    """Run jobs of the app in MODULE:APP until SIGTERM or Ctrl-C.

    \b
    Example:
      qbull worker shop.tasks:app --processes 4

    The first signal lets running jobs finish and releases jobs that have not started; a second one stops at
    once. If the server is unavailable, the worker waits for it, also at startup. The worker exits if the
    server refuses its password or is configured so that it would lose jobs.
    """
    names = None if queues is None else _names(queues)
    app = load_app(app_path)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    logs_jobs = app.environment.job_log if job_log is None else job_log
    offer = app.environment.offer.extended(offer)
    if debug:
        run_debug_worker(app, names, logs_jobs, offer)
        return
    options = WorkerOptions(
        app_path,
        grace,
        sharing,
        names,
        concurrency,
        logs_jobs,
        max_jobs=max_jobs,
        max_memory_bytes=max_memory_bytes,
        offer=offer,
    )

    async def main() -> int:
        supervisor = make_supervisor(app, options, processes)
        async with ServiceStatus(supervisor.state, supervisor.state_changed, systemd_settings()):
            if not await supervisor.reach():
                return 0
            served = ", ".join(a.settings.name for a in app._assignments(names))
            count = f"{processes} process{'es' * (processes > 1)}"
            click.echo(
                f"qbull worker: {count} for {served} at {server_of(app)}; press Ctrl-C to stop", err=True
            )
            if app.environment.borrowed_slack is not None and app.alerts is app.environment.alerts:
                click.echo(f"qbull worker: {BORROWED_SLACK}", err=True)
            async with app:
                return await supervisor.run()

    sys.exit(asyncio.run(main()))


BORROWED_SLACK = (
    "alerts go to SLACK_WEBHOOK_URL. If it belongs to another program, set QBULL_SLACK_WEBHOOK_URL to yours"
)


def server_of(app: App) -> str:
    """The app's server as a log line names it: without the password."""
    address = Address.parse(app.url)
    if address.directory is None:
        return address.shown
    reason = ", because neither QBULL_URL nor REDIS_URL is set" if app.url == DEFAULT_URL else ""
    return f"an embedded server in {os.path.abspath(address.directory)}{reason}"


def _names(queues: str) -> list[str]:
    names = [name.strip() for name in queues.split(",") if name.strip()]
    if not names:
        raise ConfigError(f'--queues "{queues}" names no queue; name at least one, or omit it for all')
    return names


def new_pod() -> str:
    """Return a new name that all worker processes of one supervisor share."""
    return f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(3)}"


def make_supervisor(app: App, options: WorkerOptions, processes: int, pod: str | None = None) -> Supervisor:
    """Make the supervisor that starts `processes` worker processes with these options."""
    pod = pod or new_pod()
    assignments = with_offer(app._assignments(options.queues, options.concurrency), options.offer)
    check_static_sharing(assignments, options.sharing)
    confirmed = {one.settings.name: one.confirmed_order for one in assignments}

    def argv(id: str, handles: ProcessHandles) -> list[str]:
        flags = ["--id", id, "--board", handles.board, "--life", handles.life, "--channel", handles.channel]
        encoded = msgspec.json.encode(options).decode()
        return [sys.executable, "-m", "qbull.cli.main", "worker-process", encoded, *map(str, flags)]

    def role(number: int | None) -> TakeRole:
        if number is None:
            # The quarantine process reads no partition.
            return TakeRole(Sharing(most=0, pod=pod), quarantine=True)
        return TakeRole(options.sharing.of_process(number, processes, pod))

    return Supervisor(
        app._make_store(),
        [assignment.settings for assignment in assignments],
        WorkerCommand(argv, role),
        SupervisorSettings(processes, options.grace, _min_idle(app, assignments), confirmed),
        alongside=app._alongside(),
    )


def _min_idle(app: App, assignments: Sequence[Assignment]) -> float:
    return shortest_min_idle([each.settings for each in assignments], app.environment.min_idle)


@click.command(hidden=True)
@click.argument("told")
@click.option("--id", required=True)
@click.option("--board", type=int, required=True)
@click.option("--life", type=int, required=True)
@click.option("--channel", type=int, required=True)
def worker_process(told: str, id: str, board: int, life: int, channel: int) -> None:
    """Run one worker process under a supervisor.

    The process imports the app, and waits for its role from the supervisor.

    `told` is a WorkerOptions in JSON. `board` is the file descriptor of the crash board, `life` that of a
    pipe which closes when the supervisor dies, `channel` that of the control channel.
    """
    # Ctrl-C reaches the whole process group. The supervisor decides and passes the signal on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = msgspec.json.decode(told, type=WorkerOptions)
    app = load_app(options.app)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    follow_jobs_in_log(job_log_on=options.job_log)
    refuse_breakpoints()
    try:
        asyncio.run(_serve(app, options, id, ProcessHandles(board, life, channel)))
    except LifespanError as error:
        log.error("%s", error)
        sys.exit(START_FAILED_EXIT_CODE)


async def _serve(app: App, options: WorkerOptions, id: str, handles: ProcessHandles) -> None:
    """Wait for the role of this process, then run jobs until it is told to stop or to leave."""
    link = SupervisorLink(open_channel(handles.channel))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Further signals change nothing: a service manager may signal the whole group, and the supervisor passes
    # its own signal on.
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    assignments = with_offer(app._assignments(options.queues, options.concurrency), options.offer)
    _follow_parent(handles.life, loop, stop, _min_idle(app, assignments) / 2)
    beside: list[asyncio.Task[Any]] = [asyncio.create_task(trim_memory()), asyncio.create_task(link.run())]
    await first_of(link.role_given.wait(), stop.wait())
    abandoned = 0
    if link.role is not None:
        slots = sum(board_slots_for(assignment.settings.concurrency) for assignment in assignments)
        worker = Worker(
            app._make_store,
            assignments,
            sharing=link.role.sharing,
            min_idle=app.environment.min_idle,
            supervision=Supervision(id, CrashBoard(handles.board, slots), options.loop_warning, link),
        )
        await _work(worker, options, link, stop)
        abandoned = worker.abandoned
    await stop_actors(beside)
    await app.close()
    if abandoned:
        # Python would wait for the threads of plain functions; the supervisor reclaims their jobs when the
        # process is gone.
        logging.shutdown()
        os._exit(0)


async def _work(worker: Worker, options: WorkerOptions, link: SupervisorLink, stop: asyncio.Event) -> None:
    """Run jobs until `stop` is set or a successor runs jobs."""
    starting, stopping = asyncio.create_task(worker.start()), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    beside: list[asyncio.Task[Any]] = [stopping]
    if starting.done():
        await starting
        leaving = asyncio.create_task(link.leave.wait())
        recycler = Recycler(link, lambda: worker.started_jobs, options.max_jobs, options.max_memory_bytes)
        beside += [asyncio.create_task(recycler.run()), leaving]
        await asyncio.wait([stopping, leaving], return_when=asyncio.FIRST_COMPLETED)
    else:
        # The worker is still waiting for its server.
        starting.cancel()
        await asyncio.wait([starting])
    if stop.is_set():
        await worker.stop(options.grace)
    else:
        await worker.leave(options.grace, lambda seconds: link.channel.send(Leaving(seconds)), stop)
    await stop_actors(beside)


def _follow_parent(life: int, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, within: float) -> None:
    """Stop when the supervisor dies.

    The supervisor sends the heartbeats of its workers. Without them other workers take over the jobs, so this
    process must be gone after `within` seconds.
    """

    def watch() -> None:
        # Nobody ever writes to the pipe: the read returns when the supervisor is gone.
        os.read(life, 1)
        loop.call_soon_threadsafe(stop.set)
        timer = threading.Timer(within, os._exit, args=[1])
        timer.daemon = True
        timer.start()

    threading.Thread(target=watch, name="qbull-life", daemon=True).start()
