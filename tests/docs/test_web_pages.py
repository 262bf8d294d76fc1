"""The pages about FastAPI and Flask: their views answer, the synchronous ones as well as the asynchronous ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pages import DOCS, blocks_of
from starlette.testclient import TestClient

from qbull.store.store import Store


@pytest.fixture(autouse=True)
def _environment(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBULL_URL", server_url)
    monkeypatch.setenv("QBULL_PREFIX", "test")


def names_after_each_block(page: str) -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {"__name__": "shop"}
    for block in blocks_of(DOCS / "guides" / page):
        if block.language == "python":
            exec(compile(block.text, block.place, "exec", dont_inherit=True), names)
            yield names


async def test_both_tabs_of_the_page_on_fastapi_answer(store: Store) -> None:
    *_, names = names_after_each_block("fastapi.md")

    def visit() -> list[Any]:
        answers = []
        with TestClient(names["api"]) as client:
            for path in ("", "/sync"):
                answer = client.post(f"{path}/orders", params={"email": "ada@example.org"})
                assert answer.status_code == 202
                answers.append(client.get(f"{path}/jobs/{answer.json()['job']}").json())
        names["app"].close_sync()
        return answers

    assert await asyncio.to_thread(visit) == [{"state": "waiting"}] * 2


async def test_both_tabs_of_the_page_on_flask_answer(store: Store) -> None:
    def visit() -> list[int]:
        codes = []
        for names in names_after_each_block("flask.md"):
            if "create_app" in names:
                client = names["create_app"]().test_client()
                answer = client.post("/orders", data={"email": "ada@example.org"})
                codes.append(answer.status_code)
                # Each asynchronous view has its own event loop, and leaves no connections behind.
                assert len(names["app"]._clients) <= 1
        names["app"].close_sync()
        assert len(names["app"]._clients) == 0
        return codes

    assert await asyncio.to_thread(visit) == [202, 202]
