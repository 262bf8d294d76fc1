"""The app of the tests of labels and resources. Its jobs witness who runs them, and whether they are alone."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from pathlib import Path

import qbull

app = qbull.App(os.environ.get("LABELLED_APP_URL") or "redis://127.0.0.1:1/0", prefix="test")
films = app.queue("films", partitions=4, concurrency=4, order="key")
models = app.queue("models", partitions=4, concurrency=6, resources={"gpu": 1})

WITNESS_SECONDS = 0.15
"""A killed process is gone after less than that, and a job runs for longer."""


def note(*words: object) -> None:
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(os.environ["LABELLED_APP_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


@films.task(key="{film}", labels={"gpu": "a100"})
async def render(film: str, n: int) -> None:
    note("ran", "render", film, n, os.environ.get("QBULL_LABELS", "-"))


@films.task(key="{film}")
async def notify(film: str, n: int) -> None:
    note("ran", "notify", film, n, os.environ.get("QBULL_LABELS", "-"))


class Witness:
    """Locks a file for each token: another job must not have it at the same time."""

    def __enter__(self) -> None:
        job = qbull.current_job()
        [number] = job.resources["gpu"]
        self.fd = os.open(f"{os.environ['LABELLED_APP_LOG']}.{number}", os.O_RDWR | os.O_CREAT, 0o600)
        until = time.monotonic() + WITNESS_SECONDS
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    note("twice", job.task, job.id, number)
                    break

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        note("done", qbull.current_job().task, qbull.current_job().id)


@models.task
async def on_the_loop() -> None:
    with Witness():
        await asyncio.sleep(2 * WITNESS_SECONDS)


@models.task
def in_a_thread() -> None:
    with Witness():
        time.sleep(2 * WITNESS_SECONDS)


@models.task(cpu=True)
def in_a_process() -> None:
    with Witness():
        time.sleep(2 * WITNESS_SECONDS)


@models.task(labels={"gpu": "a100"})
def crash_twice(count: str) -> list[int]:
    """Ends its process in its first two runs, so that the third one is in the quarantine process."""
    with open(count, "a") as runs:
        runs.write("x")
    if len(Path(count).read_text()) < 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return qbull.current_job().resources["gpu"]
