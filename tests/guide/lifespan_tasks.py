"""A module with lifespans, as a program would have them. Each process writes a line for every start and stop.

LIFESPAN_LOG names the file; LIFESPAN_FAILS names a lifespan that fails to start while that file exists.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import qbull

app = qbull.App(os.environ.get("LIFESPAN_URL"), prefix="test")
queue = app.queue("numbers", concurrency=1, retry=qbull.Retry(attempts=1))


def note(*words: object) -> None:
    with open(os.environ["LIFESPAN_LOG"], "a") as log:
        log.write(" ".join(map(str, (*words, os.getpid()))) + "\n")


def started(name: str) -> None:
    note("start", name)
    failing = os.environ.get("LIFESPAN_FAILS", "")
    if failing.endswith(name) and Path(failing).exists():
        raise OSError(f"no {name} today")


@app.lifespan
async def client() -> AsyncIterator[str]:
    started("client")
    yield f"client of {os.getpid()}"
    note("stop", "client")


@app.lifespan(cpu=True)
@contextmanager
def model() -> Iterator[dict[str, int]]:
    time.sleep(float(os.environ.get("LIFESPAN_SECONDS", "0")))
    started("model")
    yield {"six": 6, "process": os.getpid()}
    note("stop", "model")


@app.lifespan(cpu=False)
def pool() -> Iterator[str]:
    started("pool")
    yield f"pool of {os.getpid()}"
    note("stop", "pool")


@queue.task(cpu=True, timeout=2)
def compute(name: str) -> list[object]:
    return [os.getpid(), client.value, model.value[name]]


@queue.task
async def ask() -> list[object]:
    return [os.getpid(), client.value, pool.value]


@queue.task
def ask_in_a_thread() -> list[object]:
    return [os.getpid(), client.value, pool.value]


@queue.task(cpu=True)
def refused() -> object:
    return pool.value
