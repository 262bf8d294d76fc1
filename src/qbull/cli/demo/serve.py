"""`qbull demo`: the REST API and the dashboard, in the process of the demo, so that they end with it whatever ends it."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import qbull
from qbull.app import App
from qbull.errors import ConfigError

DASHBOARD_HOST, DASHBOARD_PORT = "127.0.0.1", 3050


@asynccontextmanager
async def served(app: App) -> AsyncIterator[str]:
    """Serve while it lasts. Gives a line that says where, or why not."""
    password = app.environment.access.password or secrets.token_urlsafe(9)
    try:
        api = qbull.asgi(app, qbull.Access(password=password))
    except ConfigError as why:
        yield f"no dashboard: {why}"
        return
    from qbull.api.server import beside

    async with beside(api, _listening()) as port:
        yield f"dashboard: http://{DASHBOARD_HOST}:{port}/ui, user admin, password {password}"


def _listening() -> socket.socket:
    """On the usual port; on any, where another demo has that."""
    try:
        return socket.create_server((DASHBOARD_HOST, DASHBOARD_PORT))
    except OSError:
        return socket.create_server((DASHBOARD_HOST, 0))
