"""A real server of the API on a real port, and people who use it. Every answer is held to the shape that the table promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

import qbull
from qbull.api.asgi import Api
from qbull.api.connections import ConnectionLimits, ConnectionTable
from qbull.api.problems import ProblemBody
from qbull.api.routes import Router
from qbull.api.server import ApiServer, config_of
from qbull.api.table import TABLE

ADMIN, VIEWER, PASSWORD = "admin-token-for-the-tests", "viewer-token-for-the-tests", "a password for tests"
OPERATOR = "operator-token-for-the-tests"
ACCESS = qbull.Access(password=PASSWORD, admin_token=ADMIN, operator_token=OPERATOR, viewer_token=VIEWER)

_routes = Router(TABLE)


class Person:
    """Somebody with a way to say who they are, or none."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def ask(self, method: str, path: str, json: Any = None, **options: Any) -> httpx.Response:
        if json is not None:
            options["json"] = json
        answer = await self.client.request(method, path, **options)
        hold_to_its_shape(answer)
        return answer

    async def get(self, path: str, **query: Any) -> Any:
        """The answer, which must be a good one."""
        return _good(await self.ask("GET", path, params=query))

    async def post(self, path: str, json: Any = None) -> Any:
        return _good(await self.ask("POST", path, json))

    async def put(self, path: str, json: Any = None) -> Any:
        return _good(await self.ask("PUT", path, json))

    async def delete(self, path: str) -> Any:
        return _good(await self.ask("DELETE", path))

    async def refused(self, status: int, method: str, path: str, json: Any = None, **options: Any) -> str:
        """What a request is refused with: the status is right, and the answer is a problem."""
        answer = await self.ask(method, path, json, **options)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return str(answer.json()["detail"])


class Web:
    def __init__(self, url: str, api: Api, connections: ConnectionTable, stack: AsyncExitStack) -> None:
        self.url = url
        self.api = api
        self.connections = connections
        self._stack = stack

    async def person(self, token: str | None = None, **headers: str) -> Person:
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        await self._stack.enter_async_context(client)
        return Person(client)


Open = Callable[..., Any]


@asynccontextmanager
async def opened(
    app: qbull.App, access: qbull.Access = ACCESS, limits: ConnectionLimits | None = None, port: int = 0
) -> AsyncIterator[Web]:
    api = qbull.asgi(app, access)
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    config = config_of(api, "127.0.0.1", port, limits=limits)
    server = ApiServer(api, config, bound.set_result)
    serving = asyncio.create_task(server.serve())
    async with AsyncExitStack() as stack:
        yield Web(f"http://127.0.0.1:{await bound}", api, config.connections, stack)
    api.context.shutting_down.set()
    server.should_exit = True
    await serving


@pytest.fixture(name="web")
async def open_web(app: qbull.App) -> AsyncIterator[Web]:
    async with opened(app) as web:
        yield web


@pytest.fixture(name="admin")
async def make_admin(web: Web) -> Person:
    return await web.person(ADMIN)


@pytest.fixture(name="operator")
async def make_operator(web: Web) -> Person:
    return await web.person(OPERATOR)


@pytest.fixture(name="viewer")
async def make_viewer(web: Web) -> Person:
    return await web.person(VIEWER)


@pytest.fixture(name="nobody")
async def make_nobody(web: Web) -> Person:
    return await web.person()


def hold_to_its_shape(answer: httpx.Response) -> None:
    """A good answer is as the table says, a bad one is a problem."""
    kind = answer.headers.get("content-type", "")
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.status_code >= 400 and kind.startswith("application/problem+json"):
        problem = msgspec.json.decode(answer.content, type=ProblemBody)
        assert problem.status == answer.status_code and problem.detail
        return
    found = _routes.find(answer.request.url.raw_path.decode().partition("?")[0])
    assert found is not None, answer.request.url
    endpoint = found[0][answer.request.method]
    assert answer.status_code in (endpoint.status, *endpoint.answers), (answer.status_code, answer.text)
    assert kind.startswith(endpoint.media)
    if endpoint.media == "application/json":
        msgspec.json.decode(answer.content, type=endpoint.answer)


def _good(answer: httpx.Response) -> Any:
    assert answer.status_code < 300, (answer.status_code, answer.text)
    return answer.json()
