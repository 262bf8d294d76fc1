"""FastAPI and Starlette: an app opened and closed with the web application, and at hand in requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

import qbull
from qbull import testing
from qbull.contrib.starlette import lifespan, qbull_app
from qbull.store.store import Store

Jobs = Annotated[qbull.App, Depends(qbull_app)]


def shop(server_url: str, **settings: Any) -> tuple[qbull.App, FastAPI]:
    app = qbull.App(server_url, prefix="test")

    @app.queue("mail").task
    async def send_receipt(email: str) -> str:
        return f"receipt for {email}"

    api = FastAPI(lifespan=lifespan(app, **settings))

    @api.post("/orders", status_code=202)
    async def order(email: str) -> dict[str, str]:
        return {"job": (await send_receipt.enqueue(email=email)).id}

    @api.get("/jobs/{id}")
    async def look(id: str, jobs: Jobs) -> Any:
        return await jobs.job("mail", id).result(timeout=10)

    @api.get("/state")
    async def state(request: Request) -> Any:
        return getattr(request.state, "shop", None)

    return app, api


async def test_jobs_run_in_the_process_of_the_web_application(server_url: str, store: Store) -> None:
    app, api = shop(server_url, worker=True)

    def visit() -> Any:
        with TestClient(api) as client:
            answer = client.post("/orders", params={"email": "ada"})
            return answer.status_code, client.get(f"/jobs/{answer.json()['job']}").json()

    assert await asyncio.to_thread(visit) == (202, "receipt for ada")
    assert len(app._clients) == 0, "its connections are closed"
    assert await store.workers() == {}


async def test_a_lifespan_of_ones_own_runs_within(server_url: str, store: Store) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def mine(web: FastAPI) -> AsyncIterator[dict[str, str]]:
        said.append("begin")
        yield {"shop": "open"}
        said.append("end")

    _, api = shop(server_url, inner=mine)

    def visit() -> Any:
        with TestClient(api) as client:
            return client.get("/state").json()

    assert await asyncio.to_thread(visit) == "open"
    assert said == ["begin", "end"]


async def test_in_tests_a_request_runs_its_tasks_inline(server_url: str) -> None:
    app, api = shop("redis://127.0.0.1:1/0", worker=True)

    def visit() -> Any:
        with testing.inline(app) as jobs, TestClient(api) as client:
            answer = client.post("/orders", params={"email": "ada"})
            jobs.assert_enqueued("send_receipt", email="ada")
            return client.get(f"/jobs/{answer.json()['job']}").json()

    assert await asyncio.to_thread(visit) == "receipt for ada"


async def test_starlette_asks_with_the_request(server_url: str, store: Store) -> None:
    app = qbull.App(server_url, prefix="test")

    async def index(request: Request) -> JSONResponse:
        return JSONResponse(qbull_app(request) is app)

    def visit() -> Any:
        with TestClient(Starlette(routes=[Route("/", index)], lifespan=lifespan(app))) as client:
            answer = client.get("/").json()
        with pytest.raises(qbull.ConfigError, match=r"give it lifespan=lifespan\(app\)"):
            TestClient(Starlette(routes=[Route("/", index)])).get("/")
        return answer

    assert await asyncio.to_thread(visit) is True
