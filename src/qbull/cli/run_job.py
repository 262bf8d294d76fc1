"""`qbull run-job`: run the task of one job here, to see why it fails."""

from __future__ import annotations

import asyncio
import sys
import traceback
from functools import partial
from typing import Any

import click

from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.cli.terminal import print_json
from qbull.core.progress import Progress
from qbull.core.record import body_of
from qbull.errors import Conflict, NotFound, QbullError
from qbull.observe.log import one_line, set_up_logging
from qbull.queue import Queue
from qbull.store.read.inspect import StoredJob
from qbull.worker.chunk import ChunkCaller
from qbull.worker.current import RunningJob, SimpleSink, current_job, running


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("id")
@click.option(
    "-A", "--app", "app_path", metavar="MODULE:APP", required=True, help="App that has the task's code."
)
@click.option("--pdb", is_flag=True, help="Start the debugger where the task raises an exception.")
@click.option("--anyway", is_flag=True, help="Run it although a worker may run it too.")
def run_job(queue_name: str, id: str, app_path: str, pdb: bool, anyway: bool) -> None:
    """Run the task of one job here, and print its result.

    \b
    Example:
      qbull run-job email 0199c2f0a1b27000b4a1f3c2d5e6f708 -A shop.tasks:app --pdb

    The function is called with the arguments of the job, in this process, without a timeout. breakpoint()
    works. The job itself stays as it is: its state, its attempts and its result do not change. A job that has
    not ended is refused, because a worker may run it at the same time; --anyway runs it.

    The exit code is 1 if the task raises an exception.
    """
    app = load_app(app_path)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    try:
        value = asyncio.run(_run(app, queue_name, id, anyway))
    except QbullError:
        raise
    except Exception as error:
        traceback.print_exc()
        if pdb:
            import pdb as debugger

            debugger.post_mortem(error.__traceback__)
        sys.exit(1)
    print_json(value)


async def _run(app: App, queue_name: str, id: str, anyway: bool) -> Any:
    async with app:
        queue = app._known(queue_name)
        there = await app._client().find(queue.settings, queue.job(id).id)
        if there is None:
            raise NotFound(f'queue "{queue_name}": no job {id}; it never existed, or its retention has ended')
        found = there[1]
        if found.ending is None and not anyway:
            raise Conflict(
                f'queue "{queue_name}": job {id} is {found.state}, so a worker may run it too. '
                "Cancel it first, or give --anyway.",
                state=found.state,
            )
        await app.lifespan.start(cpu=True)
        try:
            return await _call(app, queue, found)
        finally:
            await app.lifespan.stop()


async def _call(app: App, queue: Queue, found: StoredJob) -> Any:
    """Call the function as a worker does: with the middleware of the app, and as the current job."""
    body = body_of(found.record)
    task = queue.tasks.get(body.task)
    if task is None:
        raise NotFound(f'queue "{queue.name}": this app has no task "{body.task}"')
    args, kwargs = task.signature.decode(queue._payloads.open(found.id, body))
    function: Any = task.function
    if isinstance(function, ChunkCaller):
        function = ChunkCaller(function.name, function.function, 1, 0.0)
    position = f"5{found.finished_ms or found.entry_ms}-0".encode()
    job = RunningJob(queue.name, position, found.id.encode(), found.record, body)
    job.progress_sink, job.app = _PrintedProgress(), app.prefix
    running.set(job)
    hooks = app.middleware
    call = partial(function, *args, **kwargs)

    async def called() -> Any:
        if task.kind == "async":
            return await hooks.acall(current_job(), call)
        return await asyncio.to_thread(hooks.call, current_job(), call)

    value = await hooks.run(current_job(), called, None)
    task.signature.encode_result(value, app.payload_limit if app.results is None else sys.maxsize)
    return value


class _PrintedProgress(SimpleSink):
    """Prints the progress, the log lines and the emitted values of the job."""

    def progress(self, job: RunningJob, value: Progress) -> None:
        click.echo(f"progress: {value.shown()}", err=True)

    def take_line(self, job: RunningJob, text: str) -> None:
        click.echo(f"log: {one_line(text)}", err=True)

    def take_value(self, job: RunningJob, content: bytes) -> None:
        click.echo(f"emitted: {one_line(content.decode())}", err=True)
