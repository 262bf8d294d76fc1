"""Address: what a URL says about where the server is.

    redis://[user:password@]HOST:PORT/DB                              one server
    unix://[user:password@]/PATH?db=DB                                one server, on a unix socket
    embedded://DIRECTORY                                              the Valkey that qbull starts itself
    redis+cluster://[user:password@]HOST:PORT,HOST:PORT               a cluster; some of its nodes
    redis+sentinel://[user:password@]HOST:PORT,HOST:PORT/NAME/DB      the master NAME; some of its sentinels

`rediss` in place of `redis` speaks TLS (`?ssl_ca_certs=FILE`); `valkey` and `valkeys` mean the same two. The user and
password are those of the servers that keep jobs; sentinels have their own (`?sentinel_username=…&sentinel_password=…`).
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import redis.asyncio.connection as client

from qbull.errors import ConfigError

CONNECT_TIMEOUT = 5.0
SCHEMES = (
    "redis:// rediss:// valkey:// valkeys:// unix:// embedded://, redis+cluster:// for a cluster "
    "or redis+sentinel:// for sentinels"
)

Topology = Literal["one", "cluster", "sentinel"]

_SECURE = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
_USAGE: dict[str, str] = {
    "one": "redis://HOST:PORT/DB",
    "cluster": "redis+cluster://HOST:PORT,HOST:PORT",
    "sentinel": "redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB",
}


@dataclass(frozen=True)
class Address:
    """Where the server is: what a URL says, with the parts that nobody should read left out of `shown`."""

    shown: str
    kwargs: dict[str, Any]
    kind: type[client.AbstractConnection]
    directory: str | None = None
    topology: Topology = "one"
    seeds: tuple[Address, ...] = ()
    """The nodes or the sentinels to ask first."""
    master: str = ""
    """The name by which the sentinels know it."""

    @staticmethod
    def parse(url: str) -> Address:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise _wrong(url, f"it is not a URL: {error}") from None
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.scheme == "embedded":
            directory = unquote(parts.netloc + parts.path) or ".qbull"
            database = {"db": _database(url, query.get("db", "0"))}
            return Address(url, database, client.UnixDomainSocketConnection, directory)
        if parts.scheme == "unix":
            return _unix(url, parts, query)
        family, plus, topology = parts.scheme.partition("+")
        if family not in _SECURE or (plus and topology not in ("cluster", "sentinel")):
            raise _wrong(url, f'unknown scheme "{parts.scheme}"; use one of {SCHEMES}')
        match topology:
            case "cluster":
                return _cluster(url, parts, query)
            case "sentinel":
                return _sentinel(url, parts, query)
        [(host, port)] = _hosts(url, parts.netloc, 6379, "one")
        kwargs = _login(parts) | _tcp(parts, query) | {"host": host, "port": port}
        kwargs["db"] = _database(url, parts.path.strip("/") or query.get("db", "0"))
        return Address(_shown(url), kwargs, _kind(parts))

    def at(self, host: str, port: int) -> Address:
        """One server that belongs to this address: the same user, password and database."""
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return Address(f"{place} of {self.shown}", self.kwargs | {"host": host, "port": port}, self.kind)

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.kwargs["host"], self.kwargs["port"]


def _unix(url: str, parts: SplitResult, query: dict[str, str]) -> Address:
    kwargs = _login(parts) | {"path": unquote(parts.path), "db": _database(url, query.get("db", "0"))}
    return Address(f"unix://{parts.path}", kwargs, client.UnixDomainSocketConnection)


def _cluster(url: str, parts: SplitResult, query: dict[str, str]) -> Address:
    if (parts.path.strip("/") or query.get("db", "0")) != "0":
        raise _wrong(url, "a cluster has only database 0; leave the database out")
    kwargs = _login(parts) | _tcp(parts, query) | {"db": 0}
    whole = Address(_shown(url), kwargs, _kind(parts), topology="cluster")
    seeds = tuple(whole.at(*place) for place in _hosts(url, parts.netloc, 6379, "cluster"))
    return Address(whole.shown, kwargs, whole.kind, topology="cluster", seeds=seeds)


def _sentinel(url: str, parts: SplitResult, query: dict[str, str]) -> Address:
    name, _, database = parts.path.strip("/").partition("/")
    if not name:
        raise _wrong(url, f"it names no master; use {_USAGE['sentinel']}")
    kwargs = _login(parts) | _tcp(parts, query) | {"db": _database(url, database or query.get("db", "0"))}
    login = {"username": query.get("sentinel_username"), "password": query.get("sentinel_password")}
    guard = Address(_shown(url), _tcp(parts, query) | login, _kind(parts))
    seeds = tuple(guard.at(*place) for place in _hosts(url, parts.netloc, 26379, "sentinel"))
    return Address(guard.shown, kwargs, guard.kind, topology="sentinel", seeds=seeds, master=unquote(name))


def _hosts(url: str, netloc: str, default: int, topology: Topology) -> list[tuple[str, int]]:
    """The hosts and ports of the URL: one, or several with commas between them."""
    written = netloc.rpartition("@")[2].split(",")
    if topology == "one" and len(written) > 1:
        raise _wrong(url, f"it names several hosts; use {_USAGE['cluster']} or {_USAGE['sentinel']}")
    found = []
    for part in written:
        place = urlsplit(f"//{part}")
        try:
            port = default if place.port is None else place.port
        except ValueError:
            port = 0
        if port == 0:
            raise _wrong(url, "the port must be a number from 1 to 65535")
        if not place.hostname:
            raise _wrong(url, f"it names no host; use {_USAGE[topology]}")
        found.append((place.hostname, port))
    return found


def _login(parts: SplitResult) -> dict[str, Any]:
    return {
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }


def _tcp(parts: SplitResult, query: dict[str, str]) -> dict[str, Any]:
    kwargs: dict[str, Any] = {
        "socket_keepalive": True,
        "socket_keepalive_options": _keepalive(),
        "socket_connect_timeout": CONNECT_TIMEOUT,
    }
    if _is_secure(parts) and "ssl_ca_certs" in query:
        kwargs["ssl_ca_certs"] = query["ssl_ca_certs"]
    return kwargs


def _kind(parts: SplitResult) -> type[client.AbstractConnection]:
    return client.SSLConnection if _is_secure(parts) else client.Connection


def _is_secure(parts: SplitResult) -> bool:
    return _SECURE[parts.scheme.partition("+")[0]]


def _database(url: str, text: str) -> int:
    if not text.isdigit():
        raise _wrong(url, f'the database must be a number, not "{text}"')
    return int(text)


def _wrong(url: str, what: str) -> ConfigError:
    return ConfigError(f'server address "{_shown(url)}": {what}')


def _shown(url: str) -> str:
    """Up to the last @, however wrong the rest is: a password with a slash in it must not be shown either."""
    return re.sub(r"(password=)[^&#]*", r"\1***", re.sub(r"(?<=//).*@", "***@", url))


def _keepalive() -> dict[int, int]:
    wanted = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
