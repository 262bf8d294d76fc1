"""Routes: find the endpoint of a path. Paths are split while still encoded, so an id may contain a slash
(%2F).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from starlette.types import Scope

from qbull.api.endpoint import Endpoint

MAX_CACHED_PATHS = 500
"""Paths in the cache."""
MAX_CACHED_PATH_CHARS = 200

RouteMatch = tuple[dict[str, Endpoint], tuple[str, ...]]
"""The endpoints of a path by method, and the path's parameters."""


class RouteNode:
    """A node of the tree of paths: named children, a child for a parameter, and the endpoints here."""

    __slots__ = ("endpoints", "named", "parameter")

    def __init__(self) -> None:
        self.named: dict[str, RouteNode] = {}
        self.parameter: RouteNode | None = None
        self.endpoints: dict[str, Endpoint] = {}


class Router:
    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = RouteNode()
        for endpoint in endpoints:
            node = self._root
            for part in endpoint.path.split("/")[1:]:
                if part.startswith("{"):
                    node.parameter = node.parameter or RouteNode()
                    node = node.parameter
                else:
                    node = node.named.setdefault(part, RouteNode())
            assert endpoint.method not in node.endpoints, f"twice: {endpoint.method} {endpoint.path}"
            node.endpoints[endpoint.method] = endpoint
        self._often = lru_cache(MAX_CACHED_PATHS)(self._find)

    def find(self, path: str) -> RouteMatch | None:
        """Find the endpoints of an encoded path by method, and its parameters; None if there are none."""
        return self._often(path) if len(path) < MAX_CACHED_PATH_CHARS else self._find(path)

    def _find(self, path: str) -> RouteMatch | None:
        return _find(self._root, path.split("/")[1:], 0, ())


def _find(node: RouteNode, parts: list[str], at: int, found: tuple[str, ...]) -> RouteMatch | None:
    """A name wins over a parameter."""
    if at == len(parts):
        return (node.endpoints, found) if node.endpoints else None
    part = parts[at]
    following = node.named.get(part)
    if following is not None:
        answer = _find(following, parts, at + 1, found)
        if answer is not None:
            return answer
    if node.parameter is None or not part:
        return None
    text = unquote_to_bytes(part).decode("utf-8", "surrogateescape") if "%" in part else part
    return _find(node.parameter, parts, at + 1, (*found, text))


def path_of(scope: Scope) -> str:
    """The path relative to the mount point, still encoded."""
    raw = scope.get("raw_path")
    path = raw.decode("latin-1") if raw else quote(scope["path"])
    root = quote(scope.get("root_path", ""))
    return path[len(root) :] if root and (path == root or path.startswith(root + "/")) else path
