"""`qbull serve`: serve the REST API, the dashboard and the metrics of an app."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import secrets
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

import qbull
from qbull.alerts.app_alerts import alert_services
from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.cli.borrowed import report_borrowed
from qbull.cli.target import Target
from qbull.errors import ConfigError
from qbull.observe.log import set_up_logging
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.outage import Outage
from qbull.worker.process.wait_for_server import wait_for_server

F = TypeVar("F", bound=Callable[..., Any])

ANY_PROXY = "*"


def _proxies(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The addresses and networks of proxies. A name would never match the address of a connection."""
    given = [each.strip() for each in value.split(",") if each.strip()]
    if given == [ANY_PROXY]:
        return ANY_PROXY
    try:
        return ",".join(str(ipaddress.ip_network(each, strict=False)) for each in given)
    except ValueError:
        raise click.BadParameter(
            f'"{value}": give IP addresses or networks, such as 10.0.0.7 or 10.0.0.0/8', ctx, param
        ) from None


def _with_app(command: F) -> F:
    """Turn MODULE:APP, --url and --prefix into an App, which the command gets as `app`."""

    @functools.wraps(command)
    def with_app(*, app_path: str | None, url: str | None, prefix: str | None, **rest: Any) -> Any:
        return command(app=_app(app_path, url, prefix), **rest)

    return with_app  # type: ignore[return-value]


@click.command()
@click.argument("app_path", metavar="[MODULE:APP]", required=False)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 for all interfaces.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=3050,
    show_default=True,
    help="Port to listen on; 0 for any free port.",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Host name under which browsers may reach the server; also QBULL_ALLOWED_HOSTS.",
)
@click.option(
    "--public-metrics",
    is_flag=True,
    help="Serve /metrics without authentication; also QBULL_PUBLIC_METRICS=yes.",
)
@click.option(
    "--proxies",
    default="",
    metavar="ADDRESSES",
    callback=_proxies,
    help="IP addresses or networks of proxies whose X-Forwarded headers are trusted, separated by commas.",
)
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Path below which a proxy shows the dashboard and the API, such as /queues.",
)
@click.option(
    "--environment",
    default="",
    metavar="NAME",
    help="Name of this deployment, which the dashboard shows in every view; also QBULL_ENVIRONMENT.",
)
@click.option("--url", help="Without MODULE:APP: the server to show.  [default: QBULL_URL or REDIS_URL]")
@click.option("--prefix", help="Without MODULE:APP: prefix of the app's keys.  [default: QBULL_PREFIX]")
@_with_app
def serve(
    app: App,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    public_metrics: bool,
    proxies: str,
    root_path: str,
    environment: str,
) -> None:
    """Serve the REST API and the dashboard of MODULE:APP.

    \b
    Example:
      qbull serve shop.tasks:app --host 0.0.0.0
      qbull serve shop.tasks:app --proxies 127.0.0.1 --root-path /queues
      qbull serve --url redis://localhost:6379/0

    Authentication is always on. The API takes tokens from "qbull token create", QBULL_ADMIN_TOKEN,
    QBULL_OPERATOR_TOKEN or QBULL_VIEWER_TOKEN, the dashboard takes the password in QBULL_PASSWORD. A password
    has at least 12 characters, a token 16. If there is neither a password nor single sign-on
    (QBULL_OIDC_ISSUER), a password is generated and printed. Without MODULE:APP it serves any server, and the
    workers check the arguments of new jobs. If the server is unavailable, the command waits for it.
    """
    set_up_logging(app.environment.log_format, app.environment.log_level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    access = app.environment.access
    access = replace(
        access,
        hosts=(*access.hosts, *allow_host),
        public_metrics=access.public_metrics or public_metrics,
        environment=environment or access.environment,
    )
    report_borrowed("qbull serve", app, dashboard=True)
    can_log_in = access.password is not None or access.single_sign_on is not None
    generated = None if can_log_in else secrets.token_urlsafe(12)
    access = replace(access, password=access.password or generated)
    api = qbull.asgi(app, access)
    from qbull.api import server
    from qbull.api.root_path import check_root_path

    check_root_path(root_path)

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            # Once it serves, the web server installs its own signal handlers.
            loop.add_signal_handler(name, stop.set)
        async with app:
            if not await wait_for_server(app._client().store, Outage(), stop):
                return
            duties = [start_actor(duty) for duty in alert_services(app)]
            try:
                is_proxied = bool(root_path or access.hosts or not _is_loopback(host))
                ready = functools.partial(_announce, host, generated, _proxy_hint(proxies, is_proxied))
                await server.serve(api, host, port, proxies=proxies, root_path=root_path, ready=ready)
            finally:
                await stop_actors(duties)

    server.run(main)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _proxy_hint(proxies: str, is_proxied: bool) -> str | None:
    """Advice about the proxies; None if none is needed."""
    if proxies == ANY_PROXY:
        return (
            "--proxies '*' trusts everybody: each client can claim any address, so wrong passwords are "
            "not limited. Name the proxies instead, such as --proxies 10.0.0.0/8"
        )
    if is_proxied and not proxies:
        return (
            "no proxy is declared: all clients behind a proxy count as one address. "
            "If there is one, name it with --proxies ADDRESS"
        )
    return None


def _announce(host: str, generated: str | None, proxy_hint: str | None, port: int) -> None:
    """Print the address, the password if it was generated, and the hint about proxies if there is one."""
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/ui"
    click.echo(f"qbull serve: {address}; press Ctrl-C to stop", err=True)
    if proxy_hint is not None:
        click.echo(f"qbull serve: {proxy_hint}", err=True)
    if generated is not None:
        click.echo(
            f"qbull serve: user admin, password {generated} (set QBULL_PASSWORD to choose your own)", err=True
        )


def _app(app_path: str | None, url: str | None, prefix: str | None) -> App:
    if app_path is None:
        return Target.of(url, prefix, None).app
    if url is not None or prefix is not None:
        raise ConfigError(f'"{app_path}" brings its own server; omit --url and --prefix')
    return load_app(app_path)
