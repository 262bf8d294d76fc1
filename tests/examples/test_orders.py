"""examples/orders: answers 202 at once, works in the background, stops gracefully, and scales with its workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playing import to_its_end

from conftest import eventually
from qbull.store.store import Store
from topology import free_port

ORDERS = Path(__file__).parents[2] / "examples" / "orders"
LAPTOP = {"product": "Laptop", "quantity": 1, "price": 1200}
BAD = (
    b"no json",
    {},
    {**LAPTOP, "quantity": 0},
    {**LAPTOP, "quantity": 99_999_999_999},
    {**LAPTOP, "price": "much"},
    {**LAPTOP, "colour": "red"},
)

pytestmark = pytest.mark.timeout(180)


def said(line: str) -> None:
    """The page has this command."""
    lines = [
        written.partition("  #")[0].strip() for written in (ORDERS / "README.md").read_text().splitlines()
    ]
    assert line in lines, f"the page does not have the command: {line}"


class OrdersExample:
    """The example's programs, started from its directory as its page says."""

    def __init__(self, url: str, database: str, log: Path) -> None:
        self.port = free_port()
        self.database = database
        self.log = log
        self.environment = {
            **os.environ,
            "QBULL_URL": url,
            "QBULL_PREFIX": "test",
            "QBULL_DATABASE_URL": database,
            "ORDERS_SECONDS": "0.3",
            "ORDERS_PORT": str(self.port),
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def run(self, line: str, *more: str, within: float = 120) -> str:
        """A command of the page to its end; `more` makes it shorter."""
        said(line)
        command = [sys.executable, *line.split()[1:], *more]
        return to_its_end(command, ORDERS, self.environment, within)

    def start(self, line: str, *more: str) -> subprocess.Popen[bytes]:
        """A command of the page that goes on; `more` is said behind it and wins."""
        said(line)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [Path(sys.executable).parent / line.split()[0], *line.split()[1:], *more],
                cwd=ORDERS, env=self.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def start_api(self) -> subprocess.Popen[bytes]:
        return self.start("uvicorn api:api --port 8000", "--port", str(self.port), "--log-level", "warning")

    def start_workers(self, processes: int = 1) -> subprocess.Popen[bytes]:
        return self.start("qbull worker tasks:app --processes 4", "--processes", str(processes))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        if body is not None:
            request.data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    async def answers(self) -> bool:
        try:
            return self.ask("GET", "/orders/0")[0] == 404
        except OSError:
            return False

    def status(self, order_id: int) -> str:
        return str(self.ask("GET", f"/orders/{order_id}")[1]["status"])

    async def is_now(self, order_id: int, *statuses: str) -> bool:
        return self.status(order_id) in statuses

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture(name="example")
def open_example(store: Store, server_url: str, database: str, tmp_path: Path) -> Iterator[OrdersExample]:
    example = OrdersExample(server_url, database, tmp_path / "log")
    yield example
    example.close()


async def test_an_order_is_taken_at_once_and_done_in_the_background(example: OrdersExample) -> None:
    example.environment["ORDERS_SECONDS"] = "2"
    example.run("python prepare.py")
    api = example.start_api()
    await eventually(example.answers)

    refused = [example.ask("POST", "/orders", body)[0] for body in BAD]
    unknown = example.ask("GET", "/orders/1")
    code, answer = example.ask("POST", "/orders", LAPTOP)
    before = example.ask("GET", f"/orders/{answer['orderId']}")
    example.start_workers()
    await eventually(lambda: example.is_now(1, "processing"), within=60)
    await eventually(lambda: example.is_now(1, "completed"))
    api.terminate()

    assert refused == [400] + [422] * (len(BAD) - 1)
    assert unknown == (404, {"error": "there is no order 1"})
    assert (code, answer) == (
        202,
        {"message": "Order received and being processed", "orderId": 1, "status": "pending"},
    )
    assert before == (200, {"orderId": 1, **LAPTOP, "status": "pending"})
    assert api.wait(20) in (0, -signal.SIGTERM)


async def test_an_order_that_cannot_be_done_has_failed(example: OrdersExample) -> None:
    example.run("python prepare.py")
    example.start_api()
    example.start_workers()
    await eventually(example.answers)
    example.ask("POST", "/orders", {**LAPTOP, "product": "Unicorn"})
    await eventually(lambda: example.is_now(1, "failed"), within=60)

    row = await eventually(lambda: tracked(example))
    assert row == ("order:1", "failed", 1, "out of stock")


async def tracked(example: OrdersExample) -> Any:
    with psycopg.connect(example.database) as connection:
        query = "SELECT job_id, status, attempts, error_message FROM qbull_jobs WHERE status = 'failed'"
        return connection.execute(query).fetchone()


async def test_a_worker_that_is_stopped_finishes_its_order_and_leaves_the_others(
    example: OrdersExample,
) -> None:
    example.environment["ORDERS_SECONDS"] = "5"
    example.run("python prepare.py")
    example.start_api()
    worker = example.start_workers()
    await eventually(example.answers)
    for _ in range(3):
        example.ask("POST", "/orders", LAPTOP)
    await eventually(lambda: example.is_now(1, "processing"), within=60)

    worker.terminate()
    code = worker.wait(30)
    statuses = [example.status(order) for order in (1, 2, 3)]
    example.start_workers(processes=2)
    for order in (2, 3):
        await eventually(lambda order=order: example.is_now(order, "completed"), within=60)

    assert code == 0
    assert statuses == ["completed", "pending", "pending"]


def test_the_experiments_print_the_table(example: OrdersExample) -> None:
    began = time.monotonic()
    printed = example.run("python experiments.py", "--seconds", "0.3", within=150)

    rows = re.findall(r"^\| (.+) \| ([\d.]+) s \| [\d.]+ jobs/s \| ([\d.]+) s \|$", printed, re.MULTILINE)
    assert [name for name, _, _ in rows] == [
        "1 worker, 5 jobs",
        "1 worker, 10 jobs",
        "4 workers, 10 jobs",
        "10 workers, 10 jobs",
    ]
    assert "The API answers 202 within" in printed
    assert all(float(took) >= float(ideal) for _, took, ideal in rows)
    assert float(rows[3][1]) < float(rows[1][1]), "ten workers are faster than one"
    assert time.monotonic() - began > sum(float(took) for _, took, _ in rows)
