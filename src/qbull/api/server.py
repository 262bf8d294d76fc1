"""The server of `qbull serve`: uvicorn, with a graceful shutdown that open streams do not delay."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, TypeVar

import uvicorn

from qbull.api.asgi import Api
from qbull.api.connections import ConnectionLimits, ConnectionTable, limited_protocol
from qbull.api.root_path import RootPath, check_root_path
from qbull.errors import ConfigError

T = TypeVar("T")

SWEEP_SECONDS = 0.5
"""Seconds between two searches for slow connections. uvicorn ticks ten times a second."""

API_SHUTDOWN_GRACE_SECONDS = 2
"""Time for requests to end after SIGTERM, so that shutdown takes at most three seconds. Streams end at once.
"""


class ApiConfig(uvicorn.Config):
    """The configuration of the server, with the table of its connections."""

    def __init__(self, api: Api, connections: ConnectionTable, below: str = "", **settings: Any) -> None:
        super().__init__(api, http=limited_protocol(connections), **settings)
        self.connections = connections
        self._below = below

    def load(self) -> None:
        super().load()
        # Outside of the middleware that replaces the address of the proxy by that of its client.
        self.loaded_app = RootPath(self.loaded_app, self._below, self.connections.is_proxy)


class ApiServer(uvicorn.Server):
    def __init__(self, api: Api, config: ApiConfig, ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self._api = api
        self._ready = ready
        self._connections = config.connections

    async def on_tick(self, counter: int) -> bool:
        if counter % round(10 * SWEEP_SECONDS) == 0:
            self._connections.sweep()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Let a signal end the server, without raising it again in the process afterwards."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for one in signals:
            loop.add_signal_handler(one, self.handle_exit, one, None)
        try:
            yield
        finally:
            for one in signals:
                loop.remove_signal_handler(one)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._api.context.shutting_down.set()
        super().handle_exit(sig, frame)

    async def serve_without_signals(self, listening: socket.socket) -> None:
        """For a process that handles signals itself."""
        with listening:
            await self._serve([listening])

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        try:
            await super().startup(sockets)  # type: ignore[arg-type]
        except OSError as error:
            await self.lifespan.shutdown()
            address = f"{self.config.host}, port {self.config.port}"
            raise ConfigError(f"cannot serve on {address}: {error}; choose another with --port") from None
        if not self.should_exit:
            self._ready(self.servers[0].sockets[0].getsockname()[1])


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine on uvloop if it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(main())
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())


async def serve(
    api: Api,
    host: str,
    port: int,
    *,
    proxies: str = "",
    root_path: str = "",
    ready: Callable[[int], None],
) -> None:
    """Serve until a signal arrives. `ready` is called with the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {error}; choose another with --port"
        ) from None
    with listening:
        server = ApiServer(api, config_of(api, host, port, proxies, root_path), ready)
        await server.serve(sockets=[listening])


@asynccontextmanager
async def beside(api: Api, listening: socket.socket) -> AsyncIterator[int]:
    """Serve inside a process that handles signals itself. Yields the port."""
    host, port = listening.getsockname()[:2]
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    server = ApiServer(api, config_of(api, host, port), ready.set_result)
    serving = asyncio.create_task(server.serve_without_signals(listening))
    try:
        either: list[asyncio.Future[Any]] = [ready, serving]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await serving  # Its log has the reason.
            raise ConfigError("the API ended while it started; the log has the reason")
        yield ready.result()
    finally:
        api.context.shutting_down.set()
        server.should_exit = True
        await serving


def config_of(
    api: Api,
    host: str,
    port: int,
    proxies: str = "",
    root_path: str = "",
    limits: ConnectionLimits | None = None,
) -> ApiConfig:
    """The configuration of the server.

    Args:
        api: The application.
        host: The address to listen on.
        port: The port.
        proxies: The proxies that are trusted for the caller's address and the root path.
        root_path: The path below which a proxy shows the API; if empty, the proxy may name it.
        limits: The bounds of connections; by default, a body has room for the largest job.
    """
    limits = limits or ConnectionLimits(body_bytes=2 * api.body_limit)
    return ApiConfig(
        api,
        ConnectionTable(limits, proxies),
        check_root_path(root_path),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        timeout_graceful_shutdown=API_SHUTDOWN_GRACE_SECONDS,
        lifespan="on",
        ws="none",
    )
