"""A fleet: `qbull worker` as a real process with its children, to be killed, stopped and continued."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import logging_app

from conftest import eventually


@dataclass
class WorkerProcesses:
    url: str
    log: Path
    processes: int = 1
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    output: Path | None = None

    async def __aenter__(self) -> WorkerProcesses:
        self.output = self.output or self.log.with_suffix(".out")
        environment = os.environ | {
            "LOGGING_APP_URL": self.url,
            "LOGGING_APP_LOG": str(self.log),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
            "QBULL_LOG_LEVEL": "INFO",
            **self.environment,
        }
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "qbull.cli.main", "worker", "logging_app:app", "--processes", str(self.processes), *self.options],
                env=environment, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            await eventually(self._all_ready, within=60)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                await asyncio.to_thread(self.process.wait, 60)
            finally:
                self.process.kill()

    async def _all_ready(self) -> bool:
        assert self.process.poll() is None, self.said()
        return len(self.children()) == self.processes and await logging_app.ready_workers() >= self.processes

    def children(self) -> list[int]:
        try:
            text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except FileNotFoundError:
            return []
        return [int(pid) for pid in text.split()]

    def kill_one(self, which: int = 0) -> int:
        pid = self.children()[which % self.processes]
        os.kill(pid, signal.SIGKILL)
        return pid

    def said(self) -> str:
        assert self.output is not None
        return self.output.read_text()


@dataclass(frozen=True)
class Run:
    """One line of the log: a job began or ended here."""

    word: str
    key: str
    number: int
    attempt: int
    pid: int
    at: float


def runs(log: Path) -> list[Run]:
    if not log.exists():
        return []
    found = []
    for line in log.read_text().splitlines():
        word, key, number, attempt, pid, at = line.split(" ")
        found.append(Run(word, key, int(number), int(attempt), int(pid), float(at)))
    return found


def order_faults(ends: list[Run]) -> list[str]:
    """Places where a key's effects went backwards or skipped. The same number twice is a job that was run again."""
    faults = []
    last: dict[str, int] = defaultdict(lambda: -1)
    for run in ends:
        if run.number not in (last[run.key], last[run.key] + 1):
            faults.append(f"{run.key}: {run.number} after {last[run.key]}")
        last[run.key] = run.number
    return faults


def now() -> float:
    return time.time()


def every(seconds: float, do: Any) -> asyncio.Task[None]:
    async def loop() -> None:
        while True:
            await asyncio.sleep(seconds)
            do()

    return asyncio.create_task(loop())
