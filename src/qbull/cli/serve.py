"""`qbull serve`: the REST API, the dashboard and the metrics of an app."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from dataclasses import replace

import click

import qbull
from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.cli.target import Target
from qbull.core.access import Access
from qbull.errors import ConfigError
from qbull.observe.log import set_up_logging
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.outage import Outage
from qbull.worker.process.wait_for_server import wait_for_server

MIN_PASSWORD_CHARS = 12
"""Characters below which a password or token can be guessed."""


@click.command()
@click.argument("app_path", metavar="[MODULE:APP]", required=False)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 is all."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=3050, show_default=True)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="A name under which browsers may use it; or QBULL_ALLOWED_HOSTS.",
)
@click.option(
    "--public-metrics", is_flag=True, help="Let anybody read /metrics; or QBULL_PUBLIC_METRICS=yes."
)
@click.option(
    "--proxies", default="", metavar="ADDRESSES", help="Proxies whose X-Forwarded headers count, by commas."
)
@click.option("--url", help="Without MODULE:APP, the server to show.  [default: QBULL_URL or REDIS_URL]")
@click.option("--prefix", help="Without MODULE:APP, what its names begin with.  [default: QBULL_PREFIX]")
def serve(
    app_path: str | None,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    public_metrics: bool,
    proxies: str,
    url: str | None,
    prefix: str | None,
) -> None:
    """Serve the REST API and the dashboard of MODULE:APP.

    \b
    Example:
      qbull serve shop.tasks:app --host 0.0.0.0
      qbull serve --url redis://localhost:6379/0

    Authentication is always on: tokens of "qbull token create" or QBULL_ADMIN_TOKEN and QBULL_VIEWER_TOKEN, for the page
    QUEUES_UI_PASS. Where no password is set, one is made and printed. Without MODULE:APP it shows any server; arguments of new jobs are then
    checked by their workers. A server that is away is waited for.
    """
    app = _app(app_path, url, prefix)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    access = app.environment.access
    access = replace(
        access, hosts=(*access.hosts, *allow_host), public_metrics=access.public_metrics or public_metrics
    )
    _say_weak(access)
    made = None if access.password is not None else secrets.token_urlsafe(12)
    access = replace(access, password=access.password or made)
    api = qbull.asgi(app, access)
    from qbull.api import server

    def ready(port: int) -> None:
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
        click.echo(
            f"qbull serve: http://{f'[{shown}]' if ':' in shown else shown}:{port}/ui; Ctrl-C ends", err=True
        )
        if made is not None:
            click.echo(
                f"qbull serve: user admin, password {made} (set QUEUES_UI_PASS to choose your own)", err=True
            )

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, stop.set)  # from when it serves, the server has its own
        async with app:
            if not await wait_for_server(app._client().store, Outage(), stop):
                return
            duties = [start_actor(duty) for duty in app._alerting()]
            try:
                await server.serve(api, host, port, proxies=proxies, ready=ready)
            finally:
                await stop_actors(duties)

    server.run(main)


def _app(app_path: str | None, url: str | None, prefix: str | None) -> App:
    if app_path is None:
        return Target.of(url, prefix, None).app
    if url is not None or prefix is not None:
        raise ConfigError(f'"{app_path}" has a server of its own; leave --url and --prefix away')
    return load_app(app_path)


def _say_weak(access: Access) -> None:
    for name, value in (
        ("QUEUES_UI_PASS", access.password),
        ("QBULL_ADMIN_TOKEN", access.admin_token),
        ("QBULL_VIEWER_TOKEN", access.viewer_token),
    ):
        if value is not None and len(value) < MIN_PASSWORD_CHARS:
            logging.getLogger("qbull.api").warning(
                "%s has %d characters and can be guessed; use %d or more",
                name,
                len(value),
                MIN_PASSWORD_CHARS,
            )
