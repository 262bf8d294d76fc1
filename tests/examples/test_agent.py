"""examples/agent: it streams its answer, waits for an approval while nothing runs, and refunds once."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playing import Example, answers, ask, to_its_end

from conftest import eventually
from qbull.store.store import Store
from topology import free_port

pytestmark = pytest.mark.timeout(240)

REFUND = 'honcho run python ask.py "Please refund order 8"'
SIGNAL = """honcho run qbull signal support ID approval '{"approved": true, "by": "ada"}'"""
READ_AGAIN = "honcho run python ask.py --job ID"
STEPS = "honcho run qbull job support ID --steps"


class Agent(Example):
    def __init__(self, where: Path, url: str) -> None:
        super().__init__("agent", where, url)
        self.port = free_port()
        self.configure(QBULL_URL=url, QBULL_PREFIX="test", DASHBOARD_PORT=self.port, SECONDS_PER_TOKEN=0)

    async def open(self) -> Any:
        process = self.start("honcho start")
        await eventually(lambda: answers(self.at("/healthz")), within=60)
        return process

    def at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def job(self, path: str) -> dict[str, Any]:
        status, found = ask(self.at(f"/api/queues/support/jobs{path}"), token="local-operator-token")
        assert status == 200, found
        answer: dict[str, Any] = found
        return answer

    def with_id(self, line: str, id: str) -> str:
        """A command of the page about one job."""
        assert line in self.page
        return to_its_end(["sh", "-c", line.replace("ID", id)], self.directory, self.environment, 100)

    def refunds(self) -> list[tuple[int, int, str]]:
        with closing(sqlite3.connect(self.directory / "shop.db")) as connection:
            return connection.execute("SELECT order_id, cents, approved_by FROM refunds").fetchall()


@pytest.fixture(name="example")
async def prepare(store: Store, server_url: str, tmp_path: Path) -> AsyncIterator[Agent]:
    example = Agent(tmp_path, server_url)
    yield example
    example.close()


async def test_the_answer_comes_as_tokens(example: Agent) -> None:
    await example.open()

    shown = example.run('honcho run python ask.py "Where is order 7?"')

    assert "[find_order {'order': 7}]" in shown
    assert shown.count("Order 7 is a teapot for 34.50 EUR. It is on its way.") == 2


async def test_it_waits_while_nothing_runs_and_refunds_once(example: Agent) -> None:
    everything = await example.open()
    asking = example.start(REFUND)

    async def waits() -> Any:
        found = example.job("?state=delayed")["jobs"]
        return found[0] if found and found[0]["waitsFor"] == ["approval"] else None

    waiting = await eventually(waits, within=60)
    for process in (
        asking,
        everything,
    ):  # honcho passes it on: each of its processes has a session of its own
        process.terminate()
        process.wait(40)
    listed = example.run("honcho run qbull jobs support --state delayed")
    sent = example.with_id(SIGNAL, waiting["id"])
    reading = asyncio.create_task(asyncio.to_thread(example.with_id, READ_AGAIN, waiting["id"]))
    await example.open()
    shown = await reading
    steps = example.with_id(STEPS, waiting["id"])

    assert waiting["id"] in listed and sent == "sent\n"
    assert "[refund {'order': 8, 'cents': 1200}]" in shown
    assert shown.rstrip().endswith("12.00 EUR for order 8 were refunded. Is there anything else?")
    assert example.refunds() == [(8, 1200, "ada")]
    assert re.findall(r"^\d+ +(.*?)  +\w+ ", steps, re.MULTILINE) == [
        "ask_model", "find_order", "ask_model", "wait_for approval", "refund", "ask_model",
    ]  # fmt: skip


def test_its_own_tests_pass(example: Agent) -> None:
    assert "passed" in example.run("python -m pytest")
