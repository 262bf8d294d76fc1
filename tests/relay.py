"""A relay on loopback that ends TLS in front of a real server: the valkey-server that qbull brings along has none.

It works as a server with TLS does: the handshake is OpenSSL's, alerts included. With `plain_too` it also lets plain text
through, because servers that follow each other, and sentinels, have no TLS here and use the same port.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trustme

HELLO = b"\x16"
"""The first byte of every TLS connection."""


class Relay:
    def __init__(
        self, target: int, context: ssl.SSLContext, *, port: int = 0, plain_too: bool = False
    ) -> None:
        self._target = target
        self._plain_too = plain_too
        self._listener = socket.create_server(("127.0.0.1", port))
        self._open: set[socket.socket] = set()
        self.context = context
        self.port = self._listener.getsockname()[1]
        self.secured = 0
        """Connections on which TLS was agreed."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        for one in (self._listener, *list(self._open)):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        with suppress(OSError, ValueError), client:  # a descriptor that was closed meanwhile is a ValueError
            if not self._plain_too or client.recv(1, socket.MSG_PEEK) == HELLO:
                client = self.context.wrap_socket(client, server_side=True)
                self._open.add(client)
                self.secured += 1
            with client, socket.create_connection(("127.0.0.1", self._target)) as server:
                self._open.add(server)
                _pump(client, server)


def _pump(client: socket.socket, server: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([client, server], [], [])
        if server in ready:
            data = server.recv(65536)
            if not data:
                return
            client.sendall(data)
        if client in ready:
            client.setblocking(False)
            try:
                data = client.recv(65536)
                while isinstance(client, ssl.SSLSocket) and client.pending():
                    data += client.recv(65536)
            except ssl.SSLWantReadError:
                continue  # a record that is not whole yet, or none of ours
            finally:
                client.setblocking(True)
            if not data:
                return
            server.sendall(data)


def server_context(ca: trustme.CA, *names: str) -> ssl.SSLContext:
    """For a server with a certificate of this CA, made out to these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
    return context


@contextmanager
def relaying(
    target: int, context: ssl.SSLContext, *, port: int = 0, plain_too: bool = False
) -> Iterator[Relay]:
    relay = Relay(target, context, port=port, plain_too=plain_too)
    try:
        yield relay
    finally:
        relay.close()
