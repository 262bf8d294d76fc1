"""A producer as a process of its own, to be killed: the next job of each of its keys, again and again, with ids of its own.

Run by repartitioning_run.py. It writes down which numbers were acknowledged, and goes on behind these when it is started again: what
was sent and not acknowledged is sent once more, with the same ids. Every few rounds it leaves a job for later, too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import logging_app

KEYS = 20
BEHIND = 400
"""Unfinished jobs in the queue beyond which it rests."""


async def main(name: str, book: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    keys = [f"{name}-{n}" for n in range(KEYS)]
    number = acknowledged(book)
    while not stop.is_set():
        await asyncio.gather(
            *(
                logging_app.step.options(id=f"{key}:{number}").enqueue(key=key, number=number, seconds=0.005)
                for key in keys
            )
        )
        later = f"{name}-later-{number}"
        await logging_app.step.options(id=later, delay=1 + number % 3).enqueue(key=later, number=0)
        number += 1
        _write(book, number)
        while (await logging_app.work.stats()).unfinished > BEHIND and not stop.is_set():
            await asyncio.sleep(0.05)
    await logging_app.app.close()


def _write(book: Path, number: int) -> None:
    """Whoever kills this process in the middle of it finds the number before."""
    draft = book.with_suffix(book.suffix + ".new")
    draft.write_text(f"{number}")
    draft.replace(book)


def acknowledged(book: Path) -> int:
    """How many rounds of its jobs were acknowledged."""
    return int(book.read_text()) if book.exists() else 0


def sent(name: str, book: Path) -> dict[str, int]:
    """Each of its keys, and how many jobs it must have had."""
    rounds = acknowledged(book)
    return {f"{name}-{n}": rounds for n in range(KEYS)} | {f"{name}-later-{n}": 1 for n in range(rounds)}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(os.environ["LOGGING_APP_LOG"]).with_suffix(f".{sys.argv[1]}")))
