"""`qbull worker` as users start it: a real process, its children, and the lines that jobs have written."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from conftest import eventually
from qbull.store.store import Store


@dataclass
class WorkerProgram:
    """`async with WorkerProgram(url, log):` serves everyday_app until the block ends."""

    url: str
    log: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    app: str = "everyday_app:app"
    started: int = 0

    async def __aenter__(self) -> WorkerProgram:
        WorkerProgram.started += 1
        self.output = self.log.with_suffix(f".{WorkerProgram.started}.out")
        environment = os.environ | {
            "EVERYDAY_URL": self.url,
            "EVERYDAY_LOG": str(self.log),
            # As users have it: compiled modules are kept, so that a process starts in half the time.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
            **self.environment,
        }
        store = Store(self.url, "test")
        try:
            await self._start(store, environment)
        finally:
            await store.close()
        return self

    async def _start(self, store: Store, environment: dict[str, str]) -> None:
        before = await _workers(store)
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "qbull.cli.main", "worker", self.app, *self.options],
                env=environment,
                stdout=output,
                stderr=output,
            )
        try:
            await eventually(lambda: self._ready(store, before), within=60)
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        for pid in (self.process.pid, *self.children()):
            _send(pid, signal.SIGCONT)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                await asyncio.to_thread(self.process.wait, 60)
            finally:
                self.process.kill()
        self.process.wait()

    async def _ready(self, store: Store, before: set[str]) -> bool:
        assert self.process.poll() is None, self.text()
        return bool(await _workers(store) - before)

    async def ended(self) -> float:
        """Wait until the command has ended; gives the moment."""
        await asyncio.to_thread(self.process.wait, 60)
        return time.time()

    def children(self) -> list[int]:
        return children_of(self.process.pid)

    def text(self) -> str:
        return self.output.read_text()


@dataclass(frozen=True)
class Line:
    """A job started or ended: `word` says which."""

    word: str
    key: str
    number: int
    attempt: int
    pid: int
    at: float


def lines(log: Path, word: str = "", key: str = "") -> list[Line]:
    found = []
    for text in log.read_text().splitlines() if log.exists() else ():
        said, of, number, attempt, pid, at = text.split(" ")
        if word in ("", said) and key in ("", of):
            found.append(Line(said, of, int(number), int(attempt), int(pid), float(at)))
    return found


async def has_lines(log: Path, count: int, word: str = "", key: str = "") -> bool:
    return len(lines(log, word, key)) >= count


def children_of(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in text.split()]


def _send(pid: int, name: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, name)


async def _workers(store: Store) -> set[str]:
    """The ids of the workers that read partitions."""
    found = await store.workers()
    return {id for id, worker in found.items() if any(queue.partitions for queue in worker.queues.values())}
