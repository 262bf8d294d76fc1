"""The only module that uses the Redis client library: raw commands in, raw replies out, errors translated.

`open_server` opens what a URL names: one server, a cluster (cluster.py), or a master watched by sentinels
(sentinel.py). To all other modules they are the same: a `Server`.

`Server.call` sends one command on a connection of its own and returns the raw reply. Nothing is sent twice
here: verbs declare whether that is safe (store/retry.py). A call that is cancelled or times out closes its
connection, so that no later caller reads a reply that was not meant for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import redis.asyncio.connection as client
import redis.exceptions as foreign
from hiredis import pack_command
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from qbull.errors import ServerAway, ServerError, ServerRefused
from qbull.store.connection.address import SERVER_CONNECT_TIMEOUT_SECONDS, Address
from qbull.store.connection.scripts import script
from qbull.store.connection.tls import connect_hint, explain_tls_error
from qbull.store.connection.unavailable import (
    DEMOTED_ERRORS,
    UNAVAILABLE_ERRORS,
    UNAVAILABLE_PREFIXES,
    unavailable_fact,
)
from qbull.store.rights import NO_PERMISSION_PREFIXES, missing_right

if TYPE_CHECKING:
    from qbull.embedded.server import EmbeddedServer

CALL_TIMEOUT_SECONDS = 10.0
MAX_UNTIMED_BYTES = 16_384
"""A command of so many bytes fits into the buffers of an idle connection: sending it does not wait."""

CommandArgument = str | bytes | int | float

A = TypeVar("A")

_REFUSAL_ERRORS = (
    foreign.AuthenticationError,
    foreign.AuthorizationError,
    foreign.NoPermissionError,
    foreign.OutOfMemoryError,
)

# The client would look up its own version on the disk for each connection, to tell the server.
_NO_DRIVER_INFO: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in signature(client.AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}  # redis-py before 7
)


def open_server(url: str) -> Server:
    """The server that a URL names. redis:// to a node of a cluster names that cluster."""
    # These modules are built on this one.
    from qbull.store.connection.cluster import ClusterServer
    from qbull.store.connection.detected import DetectedServer
    from qbull.store.connection.sentinel import SentinelServer

    address = Address.parse(url)
    if address.topology == "one":
        return DetectedServer(address) if "host" in address.kwargs else Server(address)
    return ClusterServer(address) if address.topology == "cluster" else SentinelServer(address)


class Server:
    """A Redis or Valkey server, for one event loop."""

    same_slot_only = False
    """Whether all names in one command must have the same hash tag."""

    def __init__(self, url: str | Address) -> None:
        self.address = Address.parse(url) if isinstance(url, str) else url
        self._embedded: EmbeddedServer | None = None
        self._idle: list[client.AbstractConnection] = []
        self._listening: set[client.AbstractConnection] = set()
        self.errors: Counter[str] = Counter()
        """Error replies to scripts, by key: each is a bug or a wrong setting of the server."""
        self._era = 0  # connections of an earlier one are not used again
        self._opening = asyncio.Lock()

    async def call(self, *command: CommandArgument, timeout: float | None = None) -> Any:
        return await self.call_in_turn(command, timeout=timeout)

    async def call_in_turn(self, *commands: tuple[CommandArgument, ...], timeout: float | None = None) -> Any:
        """Send commands on one connection, each after the previous reply; returns the last reply."""
        era = self._era
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            packed = pack_command(commands[0])  # type: ignore[arg-type]
            # A connection that was closed meanwhile is opened again, which may take long.
            is_small = len(packed) <= MAX_UNTIMED_BYTES and connection.is_connected
            if is_small:
                # The server works on it while this process sets up the timer.
                await connection.send_packed_command(packed)
            async with asyncio.timeout(timeout or CALL_TIMEOUT_SECONDS):
                if not is_small:
                    await connection.send_packed_command(packed)
                reply = await connection.read_response()
                for command in commands[1:]:
                    await connection.send_packed_command(pack_command(command))  # type: ignore[arg-type]
                    reply = await connection.read_response()
        except foreign.ResponseError as error:
            if isinstance(error, DEMOTED_ERRORS):
                await self._drop()  # the name may belong to another server by now: look it up again
            await self._put_back(connection, era)
            # The client's frame holds the error, whose traceback holds the frame: a cycle that stays long.
            raise self._translated(error, commands[-1]) from error.with_traceback(None)
        except BaseException as error:
            await close_connection(connection)
            if isinstance(error, UNAVAILABLE_ERRORS):
                await self._drop()  # the cause has probably affected all connections
                raise self._translated(error) from error
            raise
        await self._put_back(connection, era)
        return reply

    async def script(self, name: str, key: str, *args: CommandArgument) -> Any:
        """Run a verb by its digest; a server that does not know the digest gets the source."""
        verb = script(name, test_clock=self.address.test_clock)
        try:
            try:
                return await self.call("EVALSHA", verb.digest, 1, key, *args)
            except NoScript:
                return await self.call("EVAL", verb.source, 1, key, *args)
        except ErrorReply:
            self.errors[key] += 1
            raise

    async def converse(self, key: str, conversation: Callable[[Conversation], Awaitable[A]]) -> A:
        """Give `conversation` its own connection to the server that has `key`. Any failure closes it."""
        era = self._era
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            answer = await conversation(Conversation(self, connection, era))
        except BaseException as error:
            await close_connection(connection)
            if isinstance(error, UNAVAILABLE_ERRORS):
                await self._drop()
                raise self._translated(error) from error
            raise
        await self._put_back(connection, era)
        return answer

    async def group_by_node(self, keys: Sequence[str]) -> list[Sequence[int]]:
        """The indexes of the keys, grouped by the server that has them: one conversation per group."""
        return [range(len(keys))]

    async def listen(self, *channels: str) -> AsyncGenerator[tuple[str, bytes], None]:
        """The messages on these channels. ("", b"") comes first, once the subscription is active.

        Ends by raising.
        """
        era = self._era
        connection = await self._connect()
        self._listening.add(connection)
        try:
            if era != self._era:
                raise foreign.ConnectionError("the connection is of an earlier server")
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                await connection.send_command("SUBSCRIBE", *channels)
                for _ in channels:
                    await connection.read_response()
            yield "", b""
            while True:
                message = await connection.read_response(timeout=30)
                if message is None:  # is the other end still there?
                    # The client would make a new connection, without the subscription.
                    if not connection.is_connected:
                        raise foreign.ConnectionError("the connection was closed")
                    await connection.send_command("PING")
                    async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                        message = await connection.read_response()
                if message[0] == b"message":
                    yield message[1].decode(), message[2]
        except (*UNAVAILABLE_ERRORS, foreign.ResponseError) as error:
            raise self._translated(error) from error
        finally:
            self._listening.discard(connection)
            await close_connection(connection)

    async def primaries(self) -> list[Server]:
        """The servers that keep jobs: this one, or all primaries of a cluster."""
        return [self]

    def invalidate(self, node: Server) -> None:
        """A primary was unavailable: another server may have replaced it."""

    async def close(self) -> None:
        await self._drop()
        await self._stop_listening()
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.close)
            self._embedded = None

    async def _put_back(self, connection: client.AbstractConnection, era: int) -> None:
        if era == self._era:
            self._idle.append(connection)
        else:
            await close_connection(connection)

    async def _drop(self) -> None:
        """Use none of the current connections again."""
        self._era += 1
        while self._idle:
            await close_connection(self._idle.pop())

    async def _stop_listening(self) -> None:
        for connection in list(self._listening):
            await close_connection(connection)

    async def _connect(self) -> client.AbstractConnection:
        return await self._dial(self.address)

    async def _dial(self, address: Address) -> client.AbstractConnection:
        kwargs = {**address.kwargs, **_NO_DRIVER_INFO}
        if address.directory is not None:
            kwargs |= await self._open_embedded(address.directory)
        connection = address.kind(
            **kwargs, protocol=2, socket_timeout=None, retry=Retry(NoBackoff(), 0), client_name="qbull"
        )
        if isinstance(connection, client.SSLConnection) and address.tls is not None:
            connection.ssl_context.context = address.tls.context(address.shown)
        try:
            # This includes the handshake: a frozen server still accepts connections.
            async with asyncio.timeout(SERVER_CONNECT_TIMEOUT_SECONDS):
                await connection.connect()  # type: ignore[no-untyped-call]
        except (*UNAVAILABLE_ERRORS, foreign.ResponseError) as error:
            await close_connection(connection)
            raise self._unreached(error, address) from None
        except BaseException:
            await close_connection(connection)
            raise
        return connection

    async def _open_embedded(self, directory: str) -> dict[str, Any]:
        async with self._opening:
            if self._embedded is None:
                # Imported here: most programs use a server that somebody else has started.
                from qbull.embedded.server import EmbeddedServer

                self._embedded = await asyncio.to_thread(EmbeddedServer.open, directory)
            elif not self._idle:
                await asyncio.to_thread(self._embedded.ensure)
        return {"path": str(self._embedded.socket), "password": self._embedded.password}

    def _unreached(self, error: BaseException, address: Address) -> ServerError:
        meaning = explain_tls_error(error)
        if meaning is not None:
            return ServerRefused(f"{address.shown}: {meaning}")
        ours = self._translated(error)
        return ServerAway(f"{ours}{connect_hint(error, address.tls)}") if type(ours) is ServerAway else ours

    def _translated(self, error: BaseException, command: tuple[CommandArgument, ...] = ()) -> ServerError:
        if type(error) is foreign.ConnectionError and isinstance(error.__cause__, foreign.RedisError):
            error = error.__cause__  # during the handshake the client hides the server's reply
        text = str(error).rstrip(".") or ("no answer" if isinstance(error, TimeoutError) else repr(error))
        if isinstance(error, foreign.NoScriptError):
            return NoScript(text)
        if isinstance(error, foreign.AskError):
            text = f"{'MOVED' if isinstance(error, foreign.MovedError) else 'ASK'} {text}"
        if text.startswith(("MOVED ", "ASK ")):
            return Redirected(self.address, text)
        wrong_login = text.startswith(("WRONGPASS", "NOAUTH", "invalid username"))
        if wrong_login or isinstance(error, foreign.AuthenticationError):
            fact = "the server refused the user or password; check them in the URL"
            return ServerRefused(f"{self.address.shown}: {fact}")
        if isinstance(error, foreign.OutOfMemoryError) or text.startswith("OOM"):
            fact = "the server is out of memory; raise its maxmemory or clean finished jobs"
            return ServerRefused(f"{self.address.shown}: {fact}")
        if isinstance(error, foreign.NoPermissionError) or text.startswith(NO_PERMISSION_PREFIXES):
            user = self.address.kwargs.get("username") or "default"
            return ServerRefused(f"{self.address.shown}: {missing_right(user, text, command)}")
        if isinstance(error, _REFUSAL_ERRORS):
            return ServerRefused(f"{self.address.shown}: {text}")
        if isinstance(error, UNAVAILABLE_ERRORS) or text.startswith(UNAVAILABLE_PREFIXES):
            trouble = "" if self._embedded is None else self._embedded.trouble()
            return ServerAway(f"{self.address.shown}: {unavailable_fact(text)}{trouble}")
        if text.startswith("WRONGTYPE"):
            return ErrorReply(f"{self.address.shown}: {_wrong_type(command)}", "WRONGTYPE")
        return ErrorReply(f"{self.address.shown}: {text}", text.split(" ", 1)[0])


async def close_connection(connection: client.AbstractConnection) -> None:
    """Close a connection, and break the cycle in its parser that would keep a large buffer."""
    await connection.disconnect(nowait=True)
    if hasattr(connection._parser, "pubsub_push_handler_func"):
        connection._parser.pubsub_push_handler_func = None


def _wrong_type(command: tuple[CommandArgument, ...]) -> str:
    """Explain WRONGTYPE. The first name of a script is the prefix of all its names."""
    words = (word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in command)
    under = next((f' under "{word}"' for word in words if word.startswith("{")), "")
    return f'another program has written something of the wrong type{under}; "qbull doctor" says what'


class Conversation:
    """One connection for several commands, so that all of them reach the same server."""

    def __init__(self, server: Server, connection: client.AbstractConnection, era: int) -> None:
        self.server = server
        self._connection = connection
        self._era = era

    @property
    def endpoint(self) -> tuple[int, str, int]:
        """Equal for two connections only if they certainly reach the same start of the same server."""
        return self._era, getattr(self._connection, "host", ""), getattr(self._connection, "port", 0)

    @property
    def is_closed(self) -> bool:
        """Whether another caller has given up this server: it may no longer be the primary."""
        return self._era != self.server._era

    async def call(self, *command: CommandArgument) -> Any:
        await self.send(command)
        return await self.receive()

    async def send(self, *commands: tuple[CommandArgument, ...]) -> None:
        packed = b"".join(map(pack_command, commands))  # type: ignore[arg-type]
        await self._connection.send_packed_command(packed)

    async def receive(self, within: float | None = None) -> Any:
        """The next reply; None if it does not come `within` seconds."""
        try:
            if within is not None:
                return await self._connection.read_response(timeout=within)
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                return await self._connection.read_response()
        except foreign.ResponseError as error:
            if isinstance(error, DEMOTED_ERRORS):
                await self.server._drop()
            raise self.server._translated(error) from error.with_traceback(None)


class TopologyLookup:
    """Looks up the servers, once at a time. Calls within `rest` seconds share the result."""

    def __init__(self, ask: Callable[[], Awaitable[None]], rest: float) -> None:
        self._ask = ask
        self._rest = rest
        self._turn = asyncio.Lock()
        self.forget()

    def forget(self) -> None:
        self._ended = float("-inf")
        self._failure: ServerError | None = None

    async def __call__(self) -> None:
        came = time.monotonic()
        async with self._turn:
            if came > self._ended + self._rest:
                self._failure = None
                try:
                    await self._ask()
                except ServerError as error:
                    self._failure = error
                self._ended = time.monotonic()
        if self._failure is not None:
            raise self._failure.with_traceback(None)


class NoScript(ServerError):
    """The server does not know the script's digest: it was restarted, or there was a failover."""


class Redirected(ServerRefused):
    """The command was not executed: its slot belongs to another node or, if `once`, is moving there."""

    def __init__(self, address: Address, reply: str) -> None:
        super().__init__(f"{address.shown}: is one node of a cluster; use redis+cluster://HOST:PORT")
        word, _, place = reply.split(" ")
        host, _, port = place.rpartition(":")
        self.once = word == "ASK"
        self.endpoint = (host or address.kwargs.get("host", ""), int(port))


class ErrorReply(ServerRefused):
    """Any other error reply of the server; `code` is its first word."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code
