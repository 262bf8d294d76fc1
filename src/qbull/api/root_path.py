"""The root path: the path below which a proxy shows the API and the dashboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from qbull.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MAX_ROOT_PATH_CHARS = 200
OWN_PATHS = ("/api", "/ui", "/metrics", "/healthz", "/readyz")
"""A root path below one of these could be taken for a path of the API."""

_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_PREFIX_HEADER = b"x-forwarded-prefix"


def check_root_path(path: str) -> str:
    """The path without a slash at its end. Raises ConfigError for a path that cannot be one."""
    found = path.rstrip("/")
    if len(found) > MAX_ROOT_PATH_CHARS or not _PATH.fullmatch(found) or "/.." in found or "/./" in found:
        raise ConfigError(f'root path "{path[:80]}": use a path such as /queues')
    if any(found == own or found.startswith(own + "/") for own in OWN_PATHS):
        raise ConfigError(f'root path "{found}": the API has such paths itself; use another one')
    return found


class RootPath:
    """An ASGI application below a path. The proxy may remove the path from requests or leave it in.

    Args:
        app: the application.
        root_path: the path, if it is fixed.
        is_proxy: whether an address is a trusted proxy, whose X-Forwarded-Prefix counts.
    """

    def __init__(self, app: ASGIApp, root_path: str, is_proxy: Callable[[str], bool]) -> None:
        self._app = app
        self._root_path = root_path
        self._is_proxy = is_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root = self._root_path or self._forwarded(scope)
            if root:
                scope["root_path"] = root
        await self._app(scope, receive, send)

    def _forwarded(self, scope: Scope) -> str:
        """The path that a trusted proxy names; empty if there is none, or it is not a path."""
        named = [value for name, value in scope["headers"] if name == _PREFIX_HEADER]
        client = scope.get("client")
        if len(named) != 1 or client is None or not self._is_proxy(client[0]):
            return ""
        try:
            return check_root_path(named[0].decode("latin-1"))
        except ConfigError:
            return ""
