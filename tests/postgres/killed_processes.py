"""Processes that are started, killed at random and started again, for as long as the block lasts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass
class KilledProcesses:
    """`kinds` are commands, each kept running. Every `pause` seconds on average one of them is hit, but never before
    they have got on since the last time: on a slow machine nothing would ever happen otherwise."""

    kinds: Sequence[Sequence[Any]]
    environment: dict[str, str]
    log: Path
    progress: Callable[[], int]
    pause: float = 0.3
    stops: bool = False
    kills: int = 0
    freezes: int = 0
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def __aenter__(self) -> KilledProcesses:
        self.running = [self._start(kind) for kind in self.kinds]
        self._nemesis = asyncio.create_task(self._hit())
        return self

    async def suffer(self, seconds: float, kills: int) -> None:
        """Until so many seconds have passed, and so many were killed."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or self.kills < kills:
            await asyncio.sleep(0.05)

    async def __aexit__(self, *_: object) -> None:
        self._nemesis.cancel()
        await asyncio.wait([self._nemesis])
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    async def _hit(self) -> None:
        luck = random.Random()
        before = self.progress()
        while True:
            await asyncio.sleep(luck.random() * 2 * self.pause)
            while self.progress() == before:
                await asyncio.sleep(0.01)
                self._start_ended()
            before = self.progress()
            which = luck.randrange(len(self.running))
            for number, process in enumerate(self.running):
                if (
                    process.poll() is not None
                ):  # it ended by itself, for example because its database was away
                    self.running[number] = self._start(self.kinds[number])
            if self.stops and luck.random() < 0.5:
                self._send(which, signal.SIGSTOP)
                await asyncio.sleep(luck.random() * 2)
                self._send(which, signal.SIGCONT)
                self.freezes += 1
            else:
                self._send(which, signal.SIGKILL)
                self.running[which].wait()
                self.running[which] = self._start(self.kinds[which])
                self.kills += 1

    def _start_ended(self) -> None:
        """Some end by themselves, for example because their database was away."""
        for number, process in enumerate(self.running):
            if process.poll() is not None:
                self.running[number] = self._start(self.kinds[number])

    def _send(self, which: int, what: signal.Signals) -> None:
        if self.running[which].poll() is None:
            os.killpg(self.running[which].pid, what)

    def _start(self, command: Sequence[Any]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [str(part) for part in command],
                env={
                    **os.environ,
                    **self.environment,
                    "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
