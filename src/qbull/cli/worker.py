"""`qbull worker`: run jobs.

The command itself is the supervisor; it starts worker_process.py as its children.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from qbull.app import DEFAULT_URL, App
from qbull.cli.app_loading import load_app
from qbull.cli.borrowed import report_borrowed
from qbull.cli.duration import SecondsParam
from qbull.cli.size import SizeParam
from qbull.cli.worker_offer import with_offer_options
from qbull.cli.worker_options import WorkerOptions, min_idle_of, worker_process_argv
from qbull.core.demand import WorkerOffer
from qbull.core.sharing import SHARING_MODES, Sharing, make_sharing
from qbull.environment import (
    INSTANCE_COUNT_VARIABLES,
    INSTANCE_ID_VARIABLES,
    PARTITIONS_PER_POD_VARIABLES,
    TAKE_OVER_VARIABLE,
    systemd_settings,
)
from qbull.errors import ConfigError
from qbull.observe.log import set_up_logging
from qbull.store.connection.address import Address
from qbull.worker.assignment import check_static_sharing, with_offer
from qbull.worker.process.channel import TakeRole
from qbull.worker.process.child import WorkerCommand
from qbull.worker.process.service_status import ServiceStatus
from qbull.worker.process.supervisor import Supervisor, SupervisorSettings

F = TypeVar("F", bound=Callable[..., Any])


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
        from qbull.cli.debug import run_debug_worker  # The supervisor itself needs no worker.

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
            does = f"{processes} process{'es' * (processes > 1)} for {served} at {server_of(app)}"
            click.echo(f"qbull worker: {does}; press Ctrl-C to stop", err=True)
            report_borrowed("qbull worker", app, outbox=True)
            async with app:
                return await supervisor.run()

    sys.exit(asyncio.run(main()))


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

    def role(number: int | None) -> TakeRole:
        if number is None:
            # The quarantine process reads no partition.
            return TakeRole(Sharing(most=0, pod=pod), quarantine=True)
        return TakeRole(options.sharing.of_process(number, processes, pod))

    return Supervisor(
        app._make_store(),
        [assignment.settings for assignment in assignments],
        WorkerCommand(functools.partial(worker_process_argv, options), role),
        SupervisorSettings(processes, options.grace, min_idle_of(app, assignments), confirmed),
        alongside=app._alongside(),
    )
