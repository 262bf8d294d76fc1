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

from campaign_app import ENOUGH_JOBS, HERE, LITTLE_BEHIND, app
from history import ACK, HEAD, Batch, Book, acks_in, batches_in
from job_plan import LATER, KeyChoice
from loads import same_ids
from loads.sequences import step, work

import qbull

BATCH = 400
BEHIND = int(os.environ["CHAOS_BEHIND"])
"""Unfinished jobs in the queue beyond which it rests."""
LOOK_SECONDS = 0.25
"""Until it counts them again: more often would be load that is not asked for."""


class Sender:
    def __init__(self, number: int, of: int, seed: int) -> None:
        here = Path(HERE)
        self._sent = Book(here / f"{number}.sent")
        self._acks = Book(here / f"{number}.acks")
        self.words = Book(here / f"sender-{number}.words")
        self._number = number
        self._next: Counter[int] = Counter()
        self._batches = 0
        self._later = 0
        self._open: list[Batch] = []
        self._learn()
        self._resent = {batch.number for batch in self._open}
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
        call: Any = step.options(delay=batch.delay_ms / 1000) if batch.delay_ms else step
        tries = 0
        while True:
            tries += 1
            try:
                jobs = await call.enqueue_many(calls)
                break
            except qbull.ServerError as error:
                self.words.say(error=type(error).__name__, jobs=len(calls), text=str(error)[:200])
                await asyncio.sleep(0.02)
        untold = [job.id for job in jobs if not job.created]
        if untold and tries == 1 and batch.number not in self._resent:
            self.words.say(untold=untold[:10])
        self._acks.write(ACK.pack(batch.number, tries, batch.at, time.monotonic_ns()))
        self._count(batch)

    async def _room(self) -> None:
        while not self.stopping:
            try:
                behind = min(BEHIND, LITTLE_BEHIND) if ENOUGH_JOBS.exists() else BEHIND
                if (await work.stats()).unfinished < behind:
                    return
            except qbull.ServerError:
                pass
            await asyncio.sleep(LOOK_SECONDS)


async def main() -> None:
    number, of, seed = map(int, sys.argv[1:])
    sender = Sender(number, of, seed)

    def stop() -> None:
        sender.stopping = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    same = asyncio.create_task(same_ids.produce())
    await sender.run()
    same.cancel()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
