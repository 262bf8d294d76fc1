"""How long orders take with one worker, four and ten: over the real API, with real worker processes.

python experiments.py [--seconds 2]
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tasks import app

SCENARIOS = ((1, 5), (1, 10), (4, 10), (10, 10))
LAPTOP = {"product": "Laptop", "quantity": 1, "price": 1200}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long an order takes")
    seconds = parser.parse_args().seconds
    os.environ["ORDERS_SECONDS"] = str(seconds)
    subprocess.run([sys.executable, "prepare.py"], check=True, stdout=subprocess.DEVNULL)
    with running("uvicorn", "api:api", "--port", str(PORT), "--log-level", "warning"):
        wait_until(api_answers)
        slowest = max(time_of(post_order) for _ in range(10))
        print(f"The API answers 202 within {slowest * 1000:.0f} ms; an order takes {seconds:g} s.\n")
        with running("qbull.cli.main", "worker", "tasks:app"):
            wait_until(lambda: not open_orders())
        print("| Scenario | Time | Throughput | jobs ÷ workers × time per job |")
        print("| --- | --- | --- | --- |")
        for workers, jobs in SCENARIOS:
            took = run(workers, jobs)
            name = f"{workers} worker{'s' * (workers > 1)}, {jobs} jobs"
            ideal = -(-jobs // workers) * seconds
            print(f"| {name} | {took:.1f} s | {jobs / took:.1f} jobs/s | {ideal:g} s |", flush=True)


def run(workers: int, jobs: int) -> float:
    """From the first order until the last is completed, with workers that are already there."""
    with running("qbull.cli.main", "worker", "tasks:app", "--processes", str(workers)):
        wait_until(lambda: asyncio.run(ready()) == workers)
        began = time.monotonic()
        ids = [post_order() for _ in range(jobs)]
        wait_until(lambda: all(status(id) == "completed" for id in ids))
        return time.monotonic() - began


async def ready() -> int:
    """How many workers have asked for work."""
    async with app:
        members = await app._client().store.workers()
    return sum("orders" in member.queues for member in members.values())


@contextmanager
def running(module: str, *arguments: str) -> Iterator[None]:
    """A process until the block ends; then it is asked to stop, and what it is doing is finished."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def post_order() -> int:
    code, answer = ask("POST", "/orders", LAPTOP)
    assert (code, answer["status"]) == (202, "pending"), answer
    return int(answer["orderId"])


def status(order_id: int) -> str:
    return str(ask("GET", f"/orders/{order_id}")[1]["status"])


def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.status, json.load(answer)


def open_orders() -> int:
    import psycopg

    with psycopg.connect(app.database or "") as connection:
        query = "SELECT count(*) FROM orders WHERE status IN ('pending', 'processing')"
        return int((connection.execute(query).fetchone() or (0,))[0])


def api_answers() -> bool:
    try:
        ask("GET", "/orders/0")
    except urllib.error.HTTPError as error:
        return error.code == 404
    except OSError:
        return False
    return True


def time_of(do: Any) -> float:
    began = time.monotonic()
    do()
    return time.monotonic() - began


def wait_until(look: Any) -> None:
    while not look():
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PORT = int(os.environ.get("ORDERS_PORT") or free_port())

if __name__ == "__main__":
    main()
