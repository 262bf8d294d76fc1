"""Connections: limits for clients before anybody has logged in.

uvicorn waits for a request as long as its client likes and keeps any number of headers. Here each connection
has bounds: the size of a request's head and body, the time to send them, the time to read an answer, and the
number of connections of one address and in all. If there are too many, the connection that has kept the
server waiting for the longest time makes room, so that slow clients do not lock out others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_OTHER_FILES = 128
"""Open files that the process keeps for others than its clients."""
PIECE_BYTES = 16 * 1024
"""Received data is parsed in pieces of this size, so that the parser never holds much more than a limit."""

LAST_REQUEST_SECONDS = 0.25
"""How long a server that stops waits for a request that may be on its way on an idle connection."""

_ANSWERS = {
    408: b"Request Timeout",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


@dataclass(frozen=True)
class ConnectionLimits:
    """The bounds of connections.

    Attributes:
        connections: Open connections in all.
        address_connections: Open connections of one address. Trusted proxies may have more.
        head_bytes: The request line and the headers together.
        headers: Number of headers.
        waiting_requests: Requests of one connection that wait for the answer to an earlier one.
        head_seconds: Time to send the head, from the connection or from its first byte.
        body_bytes: The body, with the framing of its chunks.
        body_seconds: Time to send the body, besides the time that `body_bytes_per_second` allows.
        body_bytes_per_second: The slowest rate at which a large body may arrive.
        silent_seconds: Time without a byte in the middle of a request.
        unread_seconds: Time in which a client reads nothing of its answer.
    """

    connections: int = 2048
    address_connections: int = 1024
    head_bytes: int = 32 * 1024
    headers: int = 100
    waiting_requests: int = 32
    head_seconds: float = 10.0
    body_bytes: int = 4 << 20
    body_seconds: float = 20.0
    body_bytes_per_second: int = 64 * 1024
    silent_seconds: float = 10.0
    unread_seconds: float = 30.0


class ConnectionTable:
    """All open connections of a server.

    Args:
        limits: The bounds.
        proxies: Trusted proxies, separated by commas, as `qbull serve --proxies` takes them.
    """

    def __init__(self, limits: ConnectionLimits, proxies: str = "") -> None:
        self.limits = limits
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_connections = min(limits.connections, max(files - MAX_OTHER_FILES, 16))
        self._open: dict[LimitedProtocol, None] = {}
        self._by_address: Counter[str] = Counter()
        self._trusts_all = proxies.strip() == "*"
        self._proxies = (
            [] if self._trusts_all else [_network(each) for each in proxies.split(",") if each.strip()]
        )

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: LimitedProtocol) -> bool:
        """Add a connection. Returns False if there is no room and nobody to make room."""
        address = connection.address
        room = True
        if self._by_address[address] >= self.limits.address_connections and not self.is_proxy(address):
            room = self._make_room([one for one in self._open if one.address == address])
        if room and len(self._open) >= self._max_connections:
            room = self._make_room(list(self._open))
        self._open[connection] = None
        self._by_address[address] += 1
        return room

    def remove(self, connection: LimitedProtocol) -> None:
        if connection in self._open:
            del self._open[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def sweep(self) -> None:
        """Close the connections whose time is up."""
        now = time.monotonic()
        for connection in list(self._open):
            connection.check_time(now)

    def _make_room(self, connections: list[LimitedProtocol]) -> bool:
        waiting = [one for one in connections if one.waits_for_client]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda one: one.waiting_since)
        self.remove(oldest)
        oldest.transport.abort()
        return True

    def is_proxy(self, address: str) -> bool:
        """Whether the address is that of a trusted proxy."""
        if self._trusts_all or not self._proxies:
            return self._trusts_all
        try:
            host = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(network is not None and host in network for network in self._proxies)


class LimitedProtocol(HttpToolsProtocol):
    """One connection. `limited_protocol` makes the class with its table."""

    table: ConnectionTable

    address = ""
    waiting_since = 0.0
    """When the server started to wait for the rest of a request, or for the next one."""
    waits_for_client = True
    """The client has to send something. False while a request is handled."""

    _is_last = False
    """The server stops, and the next request is the last one."""
    _is_in_head = True
    _head_bytes = 0
    _body_bytes = 0
    _deadline: float | None = None
    """The latest time for the end of the head or the body; None while nothing of a request has arrived."""
    _received_at = 0.0
    _unread_bytes = 0
    _unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        now = time.monotonic()
        self.waiting_since = self._received_at = now
        self._deadline = now + self.table.limits.head_seconds
        if not self.table.admit(self):
            self._refuse(503)

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            self._take(data if len(data) <= PIECE_BYTES else data[at : at + PIECE_BYTES])

    def _take(self, piece: bytes) -> None:
        now, limits = time.monotonic(), self.table.limits
        self._received_at = now
        if self._is_in_head:
            if not self._head_bytes:
                self._deadline = now + limits.head_seconds
                self.waiting_since = now
            self._head_bytes += len(piece)
        else:
            self._body_bytes += len(piece)
        super().data_received(piece)
        if self.transport.is_closing():
            return
        if self._is_in_head and self._head_bytes > limits.head_bytes:
            self._refuse(431)
        elif self._body_bytes > limits.body_bytes:
            self._refuse(413)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > self.table.limits.headers:
            self._refuse(431)

    def on_headers_complete(self) -> None:
        if self.transport.is_closing():
            return
        if len(self.pipeline) >= self.table.limits.waiting_requests:
            # Each of them takes a hundred times the memory of its bytes.
            self._refuse(503)
            return
        self._is_in_head, self._head_bytes, self._body_bytes = False, 0, 0
        self._deadline = time.monotonic() + self.table.limits.body_seconds
        super().on_headers_complete()
        if self._is_last:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head, self._deadline, self.waits_for_client = True, None, False
        self._body_bytes = 0
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self.waits_for_client, self.waiting_since = True, time.monotonic()
        super().on_response_complete()

    def shutdown(self) -> None:
        """The server stops. A client may have sent a request that has not arrived, so that gets its answer.

        If the connection were closed at once, such a client would see it reset.
        """
        if self._is_idle():
            self._is_last = True
            self.loop.call_later(LAST_REQUEST_SECONDS, self._close_if_idle)
        else:
            super().shutdown()

    def _is_idle(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self.transport.close()

    def check_time(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        limits = self.table.limits
        if self._reads_nothing(now):
            self.transport.abort()
        elif self.flow.read_paused:  # The server itself is behind.
            self._received_at = now
        elif self._deadline is not None and not self.transport.is_closing():
            extra = self._body_bytes / limits.body_bytes_per_second
            is_silent = now - self._received_at > limits.silent_seconds
            if is_silent or now > self._deadline + extra:
                self._refuse(408)

    def _reads_nothing(self, now: float) -> bool:
        unread = self.transport.get_write_buffer_size()
        if unread == 0 or unread != self._unread_bytes:
            self._unread_bytes, self._unread_since = unread, now
            return False
        return now - self._unread_since > self.table.limits.unread_seconds

    def _refuse(self, status: int) -> None:
        """Answer with a status, if nothing was answered yet, and close the connection."""
        is_answered = self.cycle is not None and self.cycle.response_started
        if not is_answered or self.cycle.response_complete:
            self.transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                % (status, _ANSWERS[status])
            )
        self.transport.close()


def limited_protocol(table: ConnectionTable) -> type[asyncio.Protocol]:
    """The protocol class for a server with this table."""
    namespace: dict[str, Any] = {"table": table}
    return type("LimitedConnection", (LimitedProtocol,), namespace)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:  # A name, for example of a unix socket.
        return None
