"""A producer as a process, to be killed: batches of jobs whose numbers have no gaps, and ids that others send at the same time.

What it sends is written down first. A batch that was not acknowledged is sent again with the same ids, also by the next life
of a killed producer, before anything else. Each key belongs to one producer: sender.py NUMBER OF SEED
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import campaign_app
from history import ACK, HEAD, Batch, Book, acks_in, batches_in
from job_plan import LATER, KeyChoice

import qbull

BATCH = 400
BEHIND = int(os.environ["CHAOS_BEHIND"])
"""Unfinished jobs in the queue beyond which it rests."""
MOMENT = 0.25
"""Seconds for which all producers send the same ids."""
TOGETHER = 5


class Sender:
    def __init__(self, number: int, of: int, seed: int) -> None:
        here = Path(campaign_app.HERE)
        self._sent = Book(here / f"{number}.sent")
        self._acks = Book(here / f"{number}.acks")
        self.words = Book(here / f"sender-{number}.words")
        self._number = number
        self._next: Counter[int] = Counter()
        self._batches = 0
        self._later = 0
        self._open: list[Batch] = []
        self._learn()
        self._choice = KeyChoice(number, of, seed * 1000 + self._batches)
        self.stopping = False

    def _learn(self) -> None:
        """What earlier lives have sent, and what of it was not acknowledged."""
        acknowledged = {ack.number for ack in acks_in(self._acks.path)}
        for batch in batches_in(self._sent.path):
            self._batches = batch.number + 1
            if batch.number not in acknowledged:
                self._open.append(batch)
                continue
            self._count(batch)

    def _count(self, batch: Batch) -> None:
        if batch.delay_ms:
            self._later += len(batch.keys)
        else:
            self._next.update(batch.keys)

    async def run(self) -> None:
        for batch in self._open:
            await self._send(batch)
        while not self.stopping:
            await self._room()
            await self._send(self._write(self._make()))

    def _make(self) -> Batch:
        delay_ms = 0 if self._batches % 12 else 300 + self._batches % 1700
        if delay_ms:
            first = LATER + (self._number << 22) + self._later
            keys = array("I", range(first, first + BATCH // 4))
        else:
            keys = array("I", self._choice.keys(BATCH))
        return Batch(self._batches, delay_ms, time.monotonic_ns(), keys)

    def _write(self, batch: Batch) -> Batch:
        self._sent.write(
            HEAD.pack(batch.number, len(batch.keys), batch.delay_ms, batch.at) + batch.keys.tobytes()
        )
        self._batches += 1
        return batch

    async def _send(self, batch: Batch) -> None:
        seen = Counter[int]()
        calls = []
        for key in batch.keys:
            calls.append({"key": key, "number": self._next[key] + seen[key] if not batch.delay_ms else 0})
            seen[key] += 1
        call: Any = (
            campaign_app.step.options(delay=batch.delay_ms / 1000) if batch.delay_ms else campaign_app.step
        )
        tries = 0
        while True:
            tries += 1
            try:
                await call.enqueue_many(calls)
                break
            except qbull.ServerError as error:
                self.words.say(error=type(error).__name__, jobs=len(calls), text=str(error)[:200])
                await asyncio.sleep(0.02)
        self._acks.write(ACK.pack(batch.number, tries, batch.at, time.monotonic_ns()))
        self._count(batch)

    async def _room(self) -> None:
        while not self.stopping:
            try:
                if (await campaign_app.work.stats()).unfinished < BEHIND:
                    return
            except qbull.ServerError:
                pass
            await asyncio.sleep(0.05)

    async def send_the_same(self) -> None:
        """As all the others do, in the same moments."""
        while not self.stopping:
            moment = int(time.monotonic() / MOMENT) + 1
            await asyncio.sleep(moment * MOMENT - time.monotonic())
            numbers = [moment * TOGETHER % (1 << 32) + n for n in range(TOGETHER)]
            try:
                jobs = await asyncio.gather(*(campaign_app.once.enqueue(number=number) for number in numbers))
            except qbull.ServerError:
                continue
            self.words.say(same=numbers, new=[job.created for job in jobs])


async def main() -> None:
    number, of, seed = map(int, sys.argv[1:])
    sender = Sender(number, of, seed)

    def stop() -> None:
        sender.stopping = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await asyncio.gather(sender.run(), sender.send_the_same())
    await campaign_app.app.close()


if __name__ == "__main__":
    asyncio.run(main())
