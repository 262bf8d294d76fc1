"""`qbull demo`: serve the REST API and the dashboard in the process of the demo, so that they always end with
it.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import qbull
from qbull.app import App
from qbull.cli.dev.command import DASHBOARD_HOST, DASHBOARD_PORT, login_link
from qbull.errors import ConfigError
from qbull.store.verbs.sessions import offer_login


@asynccontextmanager
async def served(app: App) -> AsyncIterator[str]:
    """Serve the dashboard within the block. Yields a line with its address, or why there is none."""
    password = app.environment.access.password or secrets.token_urlsafe(9)
    try:
        api = qbull.asgi(app, qbull.Access(password=password))
    except ConfigError as why:
        yield f"no dashboard: {why}"
        return
    from qbull.api.server import beside

    async with beside(api, _listening()) as port:
        link = login_link(port, await offer_login(app._client().store))
        yield (
            f"dashboard: http://{DASHBOARD_HOST}:{port}/ui, user admin, password {password}\n"
            f"log in once: {link}"
        )


def _listening() -> socket.socket:
    """Listen on the default port, or on any free one if another program uses it."""
    try:
        return socket.create_server((DASHBOARD_HOST, DASHBOARD_PORT))
    except OSError:
        return socket.create_server((DASHBOARD_HOST, 0))
