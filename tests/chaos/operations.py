"""What operators do in a campaign: mend the other system, redrive dead letters, see that everything is worked off, and count at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psycopg
from checker import Found
from history import Book, words_in
from loads import durable, transfers
from loads.schedules import BELLS

import qbull
from conftest import every_fault, strays
from qbull.errors import NotFound, ServerError

WORKER_DIED = "its worker died"
ORDERED = ("work", "threads", "cpu", "halts", "deploys", "transfers")
"""Declared with their order, or what is redriven would not wait its turn."""
PLAIN = (
    "same",
    "bells",
    "chunks",
    "flows",
    "unique",
    "cancels",
    "expiry",
    "rates",
    "capped",
    "lanes",
    "priorities",
    "durable",
    "called",
)
REDRIVEN_WHOLLY = ("same", "bells", "halts", "transfers")
"""Queues whose dead letters all succeed when they run again."""
REPARTITIONED = ("threads", "lanes")


class Operations:
    """`server_time` is the clock of a server, in seconds."""

    def __init__(
        self,
        app: qbull.App,
        directory: Path,
        book: Book,
        database: str | None,
        server_time: Callable[[], float],
    ) -> None:
        self._app = app
        self._directory = directory
        self._book = book
        self._database = database
        self._server_time = server_time
        names = [name for name in (*ORDERED, *PLAIN) if database or name != "transfers"]
        self.queues = {name: app.queue(name, order="key" if name in ORDERED else None) for name in names}
        self.left = ""

    async def mend_now_and_then(self) -> None:
        """The other system comes back, and the jobs that failed because of it are redriven."""
        while True:
            await asyncio.sleep(10)
            try:
                await self._redrive()
                await asyncio.sleep(2)
            except ServerError as error:
                self.left = f"not redriven: {error}"
            (self._directory / "mended").unlink(missing_ok=True)

    async def _redrive(self) -> int:
        (self._directory / "mended").touch()
        redriven = 0
        for name, queue in self.queues.items():
            await self._write_down_crashed(queue)
            if name in REDRIVEN_WHOLLY:
                redriven += await queue.redrive()
            else:
                redriven += await queue.redrive(error_contains=WORKER_DIED)
        return redriven + await self.queues["work"].redrive(error_contains="mended")

    async def _write_down_crashed(self, queue: qbull.Queue) -> None:
        cursor = None
        while True:
            page = await queue.search("failed", limit=500, cursor=cursor, error_contains=WORKER_DIED)
            if page.jobs:
                self._book.say(crashed=[job.id for job in page.jobs])
            if (cursor := page.next) is None:
                return

    async def work_off(self, seconds: float) -> Found:
        """Wait until no job waits any more and the redriven jobs have run."""
        found = Found(until=int(await asyncio.to_thread(self._server_time)))
        until = time.monotonic() + seconds
        while True:
            try:
                redriven = await self._redrive()
                left = {name: (await queue.stats()).unfinished for name, queue in self.queues.items()}
                found.unfinished = {name: n for name, n in left.items() if n}
                rung = await self.rung_until()
                self.left = f"left: {redriven} redriven, {found.unfinished}, rung {rung - found.until}"
                worked_off = not redriven and not found.unfinished.keys() - {"bells"}
                if worked_off and rung > found.until and await asyncio.to_thread(self._shipped):
                    found.unfinished = {}
                    return found
            except (ServerError, psycopg.OperationalError) as error:
                self.left = f"left: {error}"
            if time.monotonic() > until:
                found.reasons = await self._why(found.unfinished)
                return found
            await asyncio.sleep(0.5)

    async def _why(self, unfinished: Iterable[str]) -> list[str]:
        """What qbull says of jobs that are left, and which worker has them."""
        reasons = []
        for name in unfinished:
            for state in ("active", "waiting", "delayed"):
                for info in await self.queues[name].jobs(state, 0, 5):
                    why = await self.queues[name].job(info.id).why()
                    reasons.append(f"{name} {info.id}, {state}: {why}")
        return reasons

    async def rung_until(self) -> int:
        """The last tick that every schedule has fired; the ones before it have ended, for each waits for the one before."""
        try:
            bells = [await self._app.schedules.get(f"bell-{n}") for n in range(BELLS)]
        except NotFound:  # lost with the server's memory; the workers declare them again
            return 0
        fired = [bell.last.planned_at for bell in bells if bell.last is not None]
        return min((int(at.timestamp()) for at in fired if at is not None), default=0)

    def _shipped(self) -> bool:
        if self._database is None:
            return True
        with psycopg.connect(self._database) as connection:
            row = connection.execute("SELECT count(*) FROM qbull_outbox").fetchone()
        return row == (0,)

    async def count(self, found: Found) -> None:
        """What the servers say when all is over."""
        store = self._app._client().store
        for name, queue in self.queues.items():
            stats = await queue.stats()
            found.completed[name] = stats.totals.get("completed", 0)
            found.ended[name] = found.completed[name] + stats.totals.get("cancelled", 0) + stats.failed
        cursor = None
        while True:
            page = await self.queues["work"].search("failed", limit=1000, cursor=cursor)
            found.failed += [job.id for job in page.jobs]
            if (cursor := page.next) is None:
                break
        words = words_in(self._book.path)
        found.crashed = sorted({id for word in words for id in word.get("crashed", ())})
        found.audit = await every_fault(store)
        found.leaked = await strays(store)
        if self._database:
            found.money = transfers.audit(self._database)
            found.effects = durable.effects_in(self._database)
