"""A worker process, from both sides: the process itself (`python -m bench.worker`) and the handle that the bench holds.

The process says "ready" when it is connected, and when its first job waits at the gate where it is started held.
Then it obeys lines: "go", "hold", "cpu", "pings", "stop". It ends by itself when the bench is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

from bench.contestant import Contestant, Gate

PATIENCE = 60.0


class WorkerProcess:
    """`with WorkerProcess(…) as worker`: ready inside, gone afterwards."""

    def __init__(self, contestant: str, url: str, kind: str, *, held: bool) -> None:
        self._what = f"{contestant}'s worker process"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", contestant, kind, "held" if held else "open"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "BENCH_URL": url},
        )

    def __enter__(self) -> WorkerProcess:
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def wait_until_ready(self) -> None:
        self._hear()

    def go(self) -> None:
        self._tell("go")

    def hold(self) -> None:
        self._tell("hold")

    def cpu(self) -> float:
        """Seconds of processor time since its start."""
        self._tell("cpu")
        return float(self._hear())

    def pings(self) -> int:
        """How many pings it has seen."""
        self._tell("pings")
        return int(self._hear())

    def stop(self) -> dict[str, Any]:
        """End it in an orderly way; answers with what its gate has seen."""
        self._tell("stop")
        report: dict[str, Any] = self._hear()
        self._process.wait(PATIENCE)
        return report

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError(f"{self._what} has said nothing for {PATIENCE:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._what} ended with {self._process.wait()}")
        return json.loads(line)


async def serve(contestant: Contestant, url: str, kind: str, *, held: bool) -> None:
    loop = asyncio.get_running_loop()
    words: asyncio.Queue[str] = asyncio.Queue()

    def listen() -> None:
        for word in os.read(sys.stdin.fileno(), 4096).decode().split() or [
            "stop"
        ]:  # nothing: the bench is gone
            words.put_nowait(word)

    loop.add_reader(sys.stdin, listen)
    gate = Gate(held=held)
    async with contestant.working(url, kind, gate):
        await gate.reached()
        say("ready")
        while (word := await words.get()) != "stop":
            match word:
                case "go":
                    gate.open()
                case "hold":
                    gate.close()
                case "cpu":
                    say(time.process_time())
                case "pings":
                    say(len(gate.waits_ns))
        gate.open()
        loop.remove_reader(sys.stdin)
    say(gate.report())


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    from bench.contestants import CONTESTANTS

    name, kind, held = sys.argv[1:]
    asyncio.run(serve(CONTESTANTS[name], os.environ["BENCH_URL"], kind, held=held == "held"))
