"""The app that the commands of these tests work on: in a worker process, with --app, and in the test itself."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import qbull


class SampleApp:
    def __init__(self, app: qbull.App) -> None:
        email = app.queue("email", retry=qbull.Retry(delays=(0.05,)))
        orders = app.queue("orders", order="key", partitions=2)
        slow = app.queue("slow", concurrency=1, retry=qbull.Retry(attempts=1))
        self.send: Any = email.task(send)
        self.bounce: Any = email.task(bounce)
        self.ship: Any = orders.task(key="{customer}")(ship)
        self.wait_for: Any = slow.task(wait_for)
        self.block_for: Any = slow.task(cpu=True)(block_for)
        self.talk: Any = email.task(talk)
        self.email, self.orders, self.slow = email, orders, slow


async def send(to: str, copies: int = 1) -> str:
    return f"{copies} sent to {to}"


async def talk() -> None:
    await qbull.current_job().progress(50)
    await qbull.current_job().log("half \x1b[2J of it")


async def bounce(to: str) -> None:
    raise ValueError(f"no mailbox for {to}\x1b[2J")


async def ship(customer: str) -> str:
    return customer


async def wait_for(mark: str) -> str:
    """Says that it has begun, and ends when it is told to."""
    Path(f"{mark}.begun").touch()
    while not Path(f"{mark}.go").exists():
        await asyncio.sleep(0.01)
    return "went"


def block_for(mark: str) -> str:
    Path(f"{mark}.begun").touch()
    while not Path(f"{mark}.go").exists():
        time.sleep(0.01)
    return "went"


app = qbull.App()
SampleApp(app)
