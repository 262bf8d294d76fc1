"""`qbull worker --debug` and `qbull dev --debug`: a worker in this process, so that debuggers work."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from socket import socket

import click

from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.core.demand import WorkerOffer
from qbull.observe.log import set_up_logging
from qbull.worker.assignment import with_offer
from qbull.worker.job_log import follow_jobs_in_log
from qbull.worker.worker import Worker


def debug_worker(app: App, queues: Sequence[str] | None = None, offer: WorkerOffer | None = None) -> Worker:
    """A worker that runs one job of each queue at a time, in this thread and without timeouts."""
    assigned = with_offer(app._assignments(queues, 1), offer)
    assignments = [replace(each, debug=True) for each in assigned]
    return Worker(app._make_store, assignments, min_idle=app.environment.min_idle)


def run_debug_worker(
    app: App, queues: Sequence[str] | None, job_log: bool, offer: WorkerOffer | None = None
) -> None:
    """Run jobs in this process until Ctrl-C or SIGTERM."""
    follow_jobs_in_log(job_log_on=job_log)

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with app, debug_worker(app, queues, offer):
            served = ", ".join(queues or app.queues)
            click.echo(
                f"qbull worker: debugging {served}, one job at a time and without timeouts; "
                "press Ctrl-C to stop",
                err=True,
            )
            await stop.wait()

    asyncio.run(main())


def run_debug_dev(app_path: str, listening: socket, password: str | None) -> None:
    """Run an app with its API, dashboard and worker in this process until Ctrl-C."""
    app = load_app(app_path)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    shown = "as in QBULL_PASSWORD" if password is not None else secrets.token_urlsafe(9)
    port = listening.getsockname()[1]
    with api_beside(app, password or shown, listening):
        click.echo(f"qbull dev: http://127.0.0.1:{port}/ui, user admin, password {shown}", err=True)
        run_debug_worker(app, None, app.environment.job_log)


@contextmanager
def api_beside(app: App, password: str, listening: socket) -> Iterator[None]:
    """Serve the API and the dashboard in a thread, so that they answer during a breakpoint."""
    from qbull import asgi
    from qbull.api.server import beside

    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    started = threading.Event()

    async def serve() -> None:
        api = asgi(app, replace(app.environment.access, password=password))
        async with beside(api, listening):
            started.set()
            await stop.wait()
        await app.close()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            started.set()

    thread = threading.Thread(target=run, name="qbull-api", daemon=True)
    thread.start()
    started.wait()
    try:
        yield
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
