"""Moving a shop to another server: the same code at both, and a move that is killed while producers and workers run."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import qbull
from conftest import eventually

PREFIX = "test"


class Shop:
    """The same code at one of two servers."""

    def __init__(self, url: str) -> None:
        self.app = app = qbull.App(url, prefix=PREFIX)
        self.orders = app.queue("orders", partitions=3, order="key", retry=qbull.Retry(attempts=1))
        self.mail = app.queue("mail", retry=qbull.Retry(attempts=1))
        self.ran: list[tuple[str, str, int]] = []
        self.go = asyncio.Event()

        @self.orders.task(key="{customer}")
        async def place(customer: str, n: int) -> int:
            self.ran.append(("place", customer, n))
            return n

        @self.mail.task
        async def send(n: int) -> int:
            if n < 0:
                raise ValueError("no such number")
            self.ran.append(("send", "", n))
            return n

        @self.mail.task
        async def wait() -> None:
            await self.go.wait()

        @self.mail.task
        async def collect() -> list[Any]:
            return qbull.current_job().results

        @self.mail.task(durable=True)
        async def approve(n: int) -> str:
            job = qbull.current_job()
            step = await job.step(add, n)
            answer = await job.wait_for("answer")
            self.ran.append(("approve", answer, step))
            return answer

        async def add(n: int) -> int:
            self.ran.append(("add", "", n))
            return n + 1

        self.place, self.send, self.wait, self.collect, self.approve = place, send, wait, collect, approve


def silent(line: str) -> None:
    """Nobody reads the progress."""


async def _nothing() -> None:
    """Nothing else happens."""


class MoveUnderLoad:
    """Three producers and a worker go on while the queue "orders" moves, and the command is killed several times."""

    def __init__(self, old: Shop, new: Shop, seed: int = 3) -> None:
        self.old, self.new = old, new
        self.sent: list[tuple[str, int]] = []
        self.refusals: list[str] = []
        self._stop = asyncio.Event()
        self._chance = random.Random(seed)

    async def run(
        self,
        options: Sequence[str],
        kills: Sequence[bool],
        meanwhile: Callable[[], Awaitable[object]] = _nothing,
    ) -> None:
        """Move, and check that each job runs once and in order.

        Args:
            options: More options of the command.
            kills: Whether each run of the command is killed; the last one must not be.
            meanwhile: Runs beside the last run of the command.
        """
        producers = [asyncio.create_task(self._produce(who)) for who in ("ada", "bob", "eve")]
        async with self.old.app.worker():
            await self._until(300)
            for kill in kills:
                await self._command(options, kill, _nothing if kill else meanwhile)
        await self._until(len(self.sent) + 50)
        self._stop.set()
        await asyncio.gather(*producers)
        async with self.new.app.worker() as worker:
            await worker.drain()
        self._check()

    async def _until(self, count: int) -> None:
        async def are_sent() -> bool:
            return len(self.sent) > count

        await eventually(are_sent, within=60)

    async def _produce(self, who: str) -> None:
        n, shop = 0, self.old
        while not self._stop.is_set():
            try:
                await shop.place.options(id=f"{who}-{n}").enqueue(who, n)
            except qbull.ServerAway:
                await asyncio.sleep(0.02)
                continue
            except qbull.ServerError as error:
                self.refusals.append(str(error))
                shop = self.new
                continue
            self.sent.append((who, n))
            n += 1

    async def _command(
        self, options: Sequence[str], kill: bool, meanwhile: Callable[[], Awaitable[object]]
    ) -> None:
        argv = [sys.executable, "-m", "qbull.cli.main", "move", "--to", self.new.app.url]
        argv += ["--url", self.old.app.url, "--prefix", PREFIX, *options]
        command = await asyncio.create_subprocess_exec(
            *argv, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
        )
        if kill:
            await asyncio.sleep(self._chance.uniform(0.6, 3.0))
            if command.returncode is None:
                command.send_signal(signal.SIGKILL)
        (_, said), _ = await asyncio.gather(command.communicate(), meanwhile())
        assert kill or command.returncode == 0, said.decode()

    def _check(self) -> None:
        assert len(self.refusals) == 3
        assert all("was moved to" in text for text in self.refusals)
        ran = [(who, n) for _, who, n in [*self.old.ran, *self.new.ran]]
        assert sorted(ran) == sorted(self.sent)
        for who in ("ada", "bob", "eve"):
            assert [n for each, n in ran if each == who] == list(
                range(sum(each == who for each, _ in self.sent))
            )
