"""Address: the parts of a URL that locate the server.

    redis://[user:password@]HOST:PORT/DB                              one server
    unix://[user:password@]/PATH?db=DB                                one server, on a unix socket
    embedded://DIRECTORY                                              the Valkey that qbull starts itself
    redis+cluster://[user:password@]HOST:PORT,HOST:PORT               a cluster; some of its nodes
    redis+sentinel://[user:password@]HOST:PORT,HOST:PORT/NAME/DB      the master NAME; some of its sentinels

`rediss` in place of `redis` speaks TLS (see tls.py); `valkey` and `valkeys` mean the same two. The user and
password are those of the servers that keep jobs; sentinels have their own
(`?sentinel_username=…&sentinel_password=…`). `?replicas=N` is the number of replicas of each server that
keeps jobs; a cluster and sentinels know it themselves.
"""

from __future__ import annotations

import re
import socket
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import msgspec
import redis.asyncio.connection as client
from msgspec.structs import replace

from qbull.core.digits import whole_number
from qbull.errors import ConfigError
from qbull.store.connection.tls import TlsSettings

SERVER_CONNECT_TIMEOUT_SECONDS = 5.0
URL_SCHEMES = (
    "redis:// rediss:// valkey:// valkeys:// unix:// embedded://, redis+cluster:// for a cluster "
    "or redis+sentinel:// for sentinels"
)

Topology = Literal["one", "cluster", "sentinel"]

_SECURE_BY_SCHEME = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
_URL_USAGE: dict[str, str] = {
    "one": "redis://HOST:PORT/DB",
    "cluster": "redis+cluster://HOST:PORT,HOST:PORT",
    "sentinel": "redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB",
}


class Address(msgspec.Struct, frozen=True):
    """The address of a server. `shown` leaves out the secret parts of the URL."""

    shown: str
    kwargs: dict[str, Any]
    kind: type[client.AbstractConnection]
    directory: str | None = None
    topology: Topology = "one"
    seeds: tuple[Address, ...] = ()
    """The nodes or the sentinels to ask first."""
    master: str = ""
    """The name of the master at the sentinels."""
    replicas: int | None = None
    """The number of replicas that each server should have, if the URL gives it."""
    tls: TlsSettings | None = None
    test_clock: bool = False
    """Whether tests can move the clock of the server forward (store/clock.py)."""

    @staticmethod
    def parse(url: str) -> Address:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise _bad_url(url, f"it is not a URL: {error}") from None
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        family, plus, topology = parts.scheme.partition("+")
        secure = _SECURE_BY_SCHEME.get(family, False)
        try:
            whole = Address(
                _without_password(url), {}, _kind(secure), tls=TlsSettings.parse(query, secure=secure)
            )
        except ConfigError as error:
            raise _bad_url(url, str(error)) from None
        whole = replace(whole, replicas=_replicas(url, query.get("replicas")))
        if parts.scheme == "embedded":
            directory = unquote(parts.netloc + parts.path) or ".qbull"
            database = {"db": _database(url, query.get("db", "0"))}
            return Address(url, database, client.UnixDomainSocketConnection, directory)
        if parts.scheme == "unix":
            return _unix(url, parts, query, whole)
        if family not in _SECURE_BY_SCHEME or (plus and topology not in ("cluster", "sentinel")):
            raise _bad_url(url, f'unknown scheme "{parts.scheme}"; use one of {URL_SCHEMES}')
        match topology:
            case "cluster":
                return _cluster(url, parts, query, whole)
            case "sentinel":
                return _sentinel(url, parts, query, whole)
        [(host, port)] = _hosts(url, parts.netloc, 6379, "one")
        kwargs = _login(parts) | _TCP_OPTIONS | {"host": host, "port": port}
        kwargs["db"] = _database(url, parts.path.strip("/") or query.get("db", "0"))
        return replace(whole, kwargs=kwargs)

    def at(self, host: str, port: int) -> Address:
        """One server of this address, with the same user, password and database."""
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        kwargs = {name: value for name, value in self.kwargs.items() if name != "path"}
        kwargs |= _TCP_OPTIONS | {"host": host, "port": port}
        return Address(
            f"{place} of {self.shown}",
            kwargs,
            _kind(self.tls is not None),
            replicas=self.replicas,
            tls=self.tls,
        )

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.kwargs["host"], self.kwargs["port"]


def _unix(url: str, parts: SplitResult, query: dict[str, str], whole: Address) -> Address:
    kwargs = _login(parts) | {"path": unquote(parts.path), "db": _database(url, query.get("db", "0"))}
    return replace(
        whole,
        shown=f"unix://{parts.path}",
        kwargs=kwargs,
        kind=client.UnixDomainSocketConnection,
        test_clock=query.get("test_clock") == "1",
    )


def _cluster(url: str, parts: SplitResult, query: dict[str, str], whole: Address) -> Address:
    if (parts.path.strip("/") or query.get("db", "0")) != "0":
        raise _bad_url(url, "a cluster has only database 0; leave the database out")
    whole = replace(whole, kwargs=_login(parts) | _TCP_OPTIONS | {"db": 0}, topology="cluster")
    seeds = tuple(whole.at(*place) for place in _hosts(url, parts.netloc, 6379, "cluster"))
    return replace(whole, seeds=seeds)


def _sentinel(url: str, parts: SplitResult, query: dict[str, str], whole: Address) -> Address:
    name, _, database = parts.path.strip("/").partition("/")
    if not name:
        raise _bad_url(url, f"it names no master; use {_URL_USAGE['sentinel']}")
    kwargs = _login(parts) | _TCP_OPTIONS | {"db": _database(url, database or query.get("db", "0"))}
    login = {"username": query.get("sentinel_username"), "password": query.get("sentinel_password")}
    guard = replace(whole, kwargs=_TCP_OPTIONS | login)
    seeds = tuple(guard.at(*place) for place in _hosts(url, parts.netloc, 26379, "sentinel"))
    return replace(whole, kwargs=kwargs, topology="sentinel", seeds=seeds, master=unquote(name))


def _hosts(url: str, netloc: str, default: int, topology: Topology) -> list[tuple[str, int]]:
    """The hosts and ports of the URL: one, or several with commas between them."""
    written = netloc.rpartition("@")[2].split(",")
    if topology == "one" and len(written) > 1:
        raise _bad_url(
            url, f"it names several hosts; use {_URL_USAGE['cluster']} or {_URL_USAGE['sentinel']}"
        )
    found = []
    for part in written:
        place = urlsplit(f"//{part}")
        try:
            port = default if place.port is None else place.port
        except ValueError:
            port = 0
        if port == 0:
            raise _bad_url(url, "the port must be a number from 1 to 65535")
        if not place.hostname:
            raise _bad_url(url, f"it names no host; use {_URL_USAGE[topology]}")
        found.append((place.hostname, port))
    return found


def _login(parts: SplitResult) -> dict[str, Any]:
    return {
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }


def _kind(secure: bool) -> type[client.AbstractConnection]:
    return client.SSLConnection if secure else client.Connection


def _replicas(url: str, text: str | None) -> int | None:
    if text is None:
        return None
    replicas = whole_number(text)
    if not replicas:
        raise _bad_url(url, f'replicas="{text}": give how many there are for each primary, from 1')
    return replicas


def _database(url: str, text: str) -> int:
    database = whole_number(text)
    if database is None:
        raise _bad_url(url, f'the database must be a number, not "{text}"')
    return database


def _bad_url(url: str, what: str) -> ConfigError:
    return ConfigError(f'server address "{_without_password(url)}": {what}')


def _without_password(url: str) -> str:
    """Cuts up to the last @, however wrong the rest is: a password with a slash in it must not be shown."""
    return re.sub(r"(password=)[^&#]*", r"\1***", re.sub(r"(?<=//).*@", "***@", url))


def _keepalive() -> dict[int, int]:
    """Let the kernel notice within 3 seconds that the other machine is gone, also with data under way."""
    wanted = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 2500}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


_TCP_OPTIONS: dict[str, Any] = {
    "socket_keepalive": True,
    "socket_keepalive_options": _keepalive(),
    "socket_connect_timeout": SERVER_CONNECT_TIMEOUT_SECONDS,
}
