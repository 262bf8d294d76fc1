"""Starlette and FastAPI: open and close an app with the web application, and pass it to request handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from starlette.requests import HTTPConnection

from qbull.app import App
from qbull.errors import ConfigError

WebLifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
QbullLifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]

STATE_KEY = "qbull"

__all__ = ["lifespan", "qbull_app"]


def lifespan(app: App, *, worker: bool = False, inner: WebLifespan | None = None) -> QbullLifespan:
    """`FastAPI(lifespan=lifespan(app))`: the connections of the app are closed with the web application.

    Args:
        app: the qbull app.
        worker: whether jobs run in the same process, for small sites and development.
        inner: your own lifespan, which runs inside this one.
    """

    @asynccontextmanager
    async def span(web: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            if worker:
                await stack.enter_async_context(app.worker())
            state = await stack.enter_async_context(inner(web)) if inner is not None else None
            yield {**(state or {}), STATE_KEY: app}

    return span


def qbull_app(connection: HTTPConnection) -> App:
    """The app of the running web application: `Annotated[qbull.App, Depends(qbull_app)]` in FastAPI,
    `qbull_app(request)` in Starlette.

    Args:
        connection: the request or the WebSocket.
    """
    app = getattr(connection.state, STATE_KEY, None)
    if not isinstance(app, App):
        raise ConfigError("no qbull app belongs to this web application; give it lifespan=lifespan(app)")
    return app
