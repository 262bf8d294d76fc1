"""The one place that speaks to the Redis client library: URLs in, raw replies out, its errors turned into ours.

`Server.call` sends one command on a connection of its own and gives the reply as it came. Nothing is ever
sent twice from here: whoever calls knows whether that is safe. A call that is cancelled or times out closes its
connection, so that no later caller can read a reply that was not meant for it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis.asyncio.connection as client
import redis.exceptions as foreign
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from qbull.embedded import Embedded
from qbull.errors import ConfigError, ServerAway, ServerError, ServerRefused
from qbull.store.scripts import script

CALL_TIMEOUT = 10.0
CONNECT_TIMEOUT = 5.0
SCHEMES = "redis:// rediss:// valkey:// valkeys:// unix:// embedded://"

_REFUSALS = (
    foreign.AuthenticationError,
    foreign.AuthorizationError,
    foreign.NoPermissionError,
    foreign.OutOfMemoryError,
)
_AWAY = (
    foreign.ConnectionError,
    foreign.TimeoutError,
    foreign.BusyLoadingError,
    foreign.ReadOnlyError,
    foreign.MasterDownError,
    foreign.ClusterDownError,
    foreign.TryAgainError,
    OSError,
    EOFError,
)
_AWAY_WORDS = ("UNBLOCKED", "MISCONF", "BUSY ", "NOREPLICAS")


@dataclass(frozen=True)
class Address:
    """Where the server is: what a URL says, with the parts that nobody should read left out of `shown`."""

    shown: str
    kwargs: dict[str, Any]
    kind: type[client.AbstractConnection]
    directory: str | None = None

    @staticmethod
    def parse(url: str) -> Address:
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.scheme == "embedded":
            directory = unquote(parts.netloc + parts.path) or ".qbull"
            return Address(
                url,
                {"db": _database(url, query.get("db", "0"))},
                client.UnixDomainSocketConnection,
                directory,
            )
        kwargs: dict[str, Any] = {
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
        }
        if parts.scheme == "unix":
            kwargs |= {"path": unquote(parts.path), "db": _database(url, query.get("db", "0"))}
            return Address(f"unix://{parts.path}", kwargs, client.UnixDomainSocketConnection)
        secure = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}.get(parts.scheme)
        if secure is None:
            raise ConfigError(
                f'server address "{_shown(url)}": unknown scheme "{parts.scheme}"; use one of {SCHEMES}'
            )
        try:
            port = parts.port or 6379
        except ValueError:
            raise ConfigError(
                f'server address "{_shown(url)}": the port must be a number from 1 to 65535'
            ) from None
        if not parts.hostname:
            raise ConfigError(f'server address "{_shown(url)}": it names no host; use redis://HOST:PORT/DB')
        kwargs |= {
            "host": parts.hostname,
            "port": port,
            "db": _database(url, parts.path.strip("/") or query.get("db", "0")),
        }
        kwargs |= {
            "socket_keepalive": True,
            "socket_keepalive_options": _keepalive(),
            "socket_connect_timeout": CONNECT_TIMEOUT,
        }
        if secure and "ssl_ca_certs" in query:
            kwargs["ssl_ca_certs"] = query["ssl_ca_certs"]
        return Address(_shown(url), kwargs, client.SSLConnection if secure else client.Connection)


class Server:
    """A Redis or Valkey server, for one event loop."""

    def __init__(self, url: str) -> None:
        self.address = Address.parse(url)
        self._embedded: Embedded | None = None
        self._idle: list[client.AbstractConnection] = []
        self._opening = asyncio.Lock()

    async def call(self, *command: str | bytes | int | float, timeout: float | None = None) -> Any:
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            async with asyncio.timeout(timeout or CALL_TIMEOUT):
                await connection.send_command(*command)
                reply = await connection.read_response()
        except foreign.ResponseError as error:
            self._idle.append(connection)
            raise self._ours(error) from error
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, _AWAY):
                await self._drop_idle()  # what failed this one has probably failed them all
                raise self._ours(error) from error
            raise
        self._idle.append(connection)
        return reply

    async def script(self, name: str, key: str, *args: str | bytes | int | float) -> Any:
        """Run a verb. Its digest is sent first; a server that does not know it gets the source."""
        verb = script(name)
        try:
            return await self.call("EVALSHA", verb.digest, 1, key, *args)
        except NoScript:
            return await self.call("EVAL", verb.source, 1, key, *args)

    async def listen(self, *channels: str) -> AsyncIterator[tuple[str, bytes]]:
        """What is published on these channels; first ("", b"") once the subscription stands. Ends by raising."""
        connection = await self._connect()
        try:
            await connection.send_command("SUBSCRIBE", *channels)
            for _ in channels:
                await connection.read_response()
            yield "", b""
            while True:
                message = await connection.read_response(timeout=30)
                if message is None:  # is the other end still there?
                    await connection.send_command("PING")
                    async with asyncio.timeout(CALL_TIMEOUT):
                        message = await connection.read_response()
                if message[0] == b"message":
                    yield message[1].decode(), message[2]
        except (*_AWAY, foreign.ResponseError) as error:
            raise self._ours(error) from error
        finally:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        await self._drop_idle()
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.close)
            self._embedded = None

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def _connect(self) -> client.AbstractConnection:
        kwargs = dict(self.address.kwargs)
        if self.address.directory is not None:
            kwargs |= await self._open_embedded(self.address.directory)
        connection = self.address.kind(
            **kwargs, protocol=2, socket_timeout=None, retry=Retry(NoBackoff(), 0), client_name="qbull"
        )
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except (*_AWAY, foreign.ResponseError) as error:
            await connection.disconnect(nowait=True)
            raise self._ours(error) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _open_embedded(self, directory: str) -> dict[str, Any]:
        async with self._opening:
            if self._embedded is None:
                self._embedded = await asyncio.to_thread(Embedded.open, directory)
            elif not self._idle:
                await asyncio.to_thread(self._embedded.ensure)
        return {"path": str(self._embedded.socket), "password": self._embedded.password}

    def _ours(self, error: BaseException) -> ServerError:
        text = str(error).rstrip(".") or type(error).__name__
        if isinstance(error, foreign.NoScriptError):
            return NoScript(text)
        if isinstance(error, foreign.AuthenticationError) or text.startswith(("WRONGPASS", "NOAUTH")):
            return ServerRefused(
                f"{self.address.shown}: the server refused the user or password; check them in the URL"
            )
        if isinstance(error, foreign.OutOfMemoryError) or text.startswith("OOM"):
            return ServerRefused(
                f"{self.address.shown}: the server is out of memory; raise its maxmemory or clean finished jobs"
            )
        if isinstance(error, _REFUSALS):
            return ServerRefused(f"{self.address.shown}: {text}")
        if isinstance(error, _AWAY) or text.startswith(_AWAY_WORDS):
            return ServerAway(f"{self.address.shown}: cannot be reached: {text}")
        return ErrorReply(f"{self.address.shown}: {text}", text.split(" ", 1)[0])


class NoScript(ServerError):
    """The server does not know the script's digest: it was restarted, or failed over."""


class ErrorReply(ServerRefused):
    """Any other error that the server answered with; `code` is its first word."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def _database(url: str, text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f'server address "{_shown(url)}": the database must be a number, not "{text}"')
    return int(text)


def _shown(url: str) -> str:
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]).geturl()


def _keepalive() -> dict[int, int]:
    wanted = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
