"""`python -m bench.rest`: enqueue by HTTP over 1,000 connections at a time, beside empty handlers of the same server in the same run.

The server is that of `qbull serve`, in a process of its own. `empty` is an endpoint that takes the same request with the same token, checks the same shape
and answers the same without doing anything; `bare` is an ASGI application that does nothing at all. Rounds alternate; medians are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop
from starlette.types import Receive, Scope, Send

import qbull
from bench.server import Server, open_server
from qbull.api.asgi import Api
from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing, Reply
from qbull.api.server import serve
from qbull.api.table import TABLE
from qbull.views import jobs as wire

TOKEN = "a-token-for-the-bench"
BODY = json.dumps({"task": "nothing", "payload": {"n": 1, "text": "x" * 50}}).encode()
ID = "01a1df131cc77000bf2261ea0cf0e7dd"
ANSWER = (
    b'{"success":true,"jobId":"%s","status":"waiting","timestamp":"2026-11-15T11:58:54.159Z","created":true}'
    % ID.encode()
)
PATHS = {"bare": "/bare", "empty": "/api/queues/http/empty", "enqueue": "/api/queues/http/jobs"}


def make_app(url: str) -> qbull.App:
    app = qbull.App(url, prefix="bench-rest")
    queue = app.queue("http")

    @queue.task
    async def nothing(n: int, text: str) -> None: ...

    return app


async def empty(call: ApiCall[Nothing, wire.NewJobBody]) -> Reply:
    accepted = wire.AcceptedView(job_id=ID, status="waiting", timestamp=now(), created=True)
    return Reply(accepted, headers={"location": f"/api/queues/http/jobs/{ID}"})


EMPTY = Endpoint(
    method="POST",
    path="/api/queues/{queue}/empty",
    role="admin",
    summary="Takes what an enqueue takes, and does nothing",
    handler=empty,
    body=wire.NewJobBody,
    answer=wire.AcceptedView,
    status=202,
    audit="nothing",
    counted=True,
)


class WithBare(Api):
    """The API, and beside it an application that does nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/bare":
            await super().__call__(scope, receive, send)
            return
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})


def run_server(url: str) -> None:
    app = make_app(url)

    async def main() -> None:
        TABLE.append(EMPTY)
        api = WithBare(app, qbull.Access(admin_token=TOKEN))
        async with app:
            await serve(api, "127.0.0.1", 0, ready=lambda port: print(port, flush=True))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


class Connection(asyncio.Protocol):
    """Sends the same request again and again, each after the answer to the one before."""

    def __init__(self, request: bytes, many: int) -> None:
        self._request = request
        self._left = many
        self._heard = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, there, body = self._heard.partition(b"\r\n\r\n")
        if not there:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        if not head.startswith(b"HTTP/1.1 202"):
            self.done.set_exception(RuntimeError(self._heard.decode()))
            return
        self._heard = b""
        self._left -= 1
        if self._left:
            self._transport.write(self._request)
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))


def request(path: str, port: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    ).encode() + BODY


async def load(port: int, path: str, connections: int, each: int) -> float:
    """Requests a second."""
    loop = asyncio.get_running_loop()
    sent = request(path, port)
    made = [
        await loop.create_connection(lambda: Connection(sent, each), "127.0.0.1", port)
        for _ in range(connections)
    ]
    began = time.perf_counter()
    for transport, connection in made:
        connection.begin(transport)
    await asyncio.gather(*(connection.done for _, connection in made))
    took = time.perf_counter() - began
    for transport, _ in made:
        transport.close()
    return connections * each / took


async def measure(port: int, connections: int, each: int, rounds: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in PATHS}
    for path in PATHS.values():
        await load(port, path, 50, 10)  # warm
    for _ in range(rounds):
        for name, path in PATHS.items():
            figures[name].append(await load(port, path, connections, each))
    return figures


def rate_of(server: Server, name: str, requests: int, connections: int = 1000) -> float:
    """Requests a second to one of `PATHS`, after some that warm the server up."""
    each = max(requests // connections, 1)
    with serving(server) as port, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(load(port, PATHS[name], 50, 10))
        return runner.run(load(port, PATHS[name], connections, each))


@contextmanager
def serving(server: Server) -> Iterator[int]:
    """The port of the server process."""
    command = [sys.executable, "-m", "bench.rest", "--serve", server.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--serve", help=argparse.SUPPRESS)
    options.add_argument("--connections", type=int, default=1000)
    options.add_argument("--each", type=int, default=10, help="requests on each connection")
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    if asked.serve:
        run_server(asked.serve)
        return
    with (
        open_server() as server,
        serving(server) as port,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        figures = runner.run(measure(port, asked.connections, asked.each, asked.rounds))
    medians = {name: statistics.median(rates) for name, rates in figures.items()}
    for name, rate in medians.items():
        print(f"{name:8} {rate:8,.0f} requests a second over {asked.connections:,} connections")
    for name in ("empty", "bare"):
        print(f"enqueue / {name:6} {medians['enqueue'] / medians[name]:.2f}")


if __name__ == "__main__":
    main()
