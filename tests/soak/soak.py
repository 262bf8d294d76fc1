"""Soak: steady load on a worker, a server and the API, whose memory, descriptors, connections and names must stay flat.

    make soak MINUTES=60                # a table at the end; ends with 1 where something grew
    make soak MINUTES=3 ARGS="--leak"   # a task that leaks on purpose: must end with 1

Real processes: an embedded Valkey, `qbull worker` with one process, `qbull serve`, and this one, which enqueues and asks
the API. Every SAMPLE seconds all of them are looked at. The first part is the warm-up and does not count: it begins with a flood, so
that every pool, buffer and allocator has had its largest size once, and finished jobs fill up what is kept. What ends by itself is left
out: names with a lifetime (their memory counts), and the trail of who did what, whose bound is far away.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
SAMPLE = 2.0
PASSWORD = "a password for the soak"
MIB = 1024.0 * 1024.0
OPERATIONS = 200
FLOOD = 20_000
"""Jobs that are there at once in the beginning, as after an outage."""


@dataclass(frozen=True)
class Bound:
    """What a figure may gain over the whole measured time: a share of it, and at least so much."""

    unit: str
    share: float
    least: float


BOUNDS = {
    "memory": Bound("MiB", 0.03, 2.0),
    "descriptors": Bound("", 0.0, 2.0),
    "threads": Bound("", 0.0, 2.0),
    "used_memory": Bound("MiB", 0.03, 1.0),
    "connections": Bound("", 0.0, 2.0),
    "names": Bound("", 0.02, 10.0),
}


@dataclass
class Samples:
    began: float = field(default_factory=time.monotonic)
    rows: dict[tuple[str, str], array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    """Second, value …: packed, because this process is one of those that are looked at."""
    kinds: list[Counter[str]] = field(default_factory=list)

    def add(self, who: str, what: str, value: float) -> None:
        self.rows[who, what].extend((time.monotonic() - self.began, value))

    def pairs(self, who: str, what: str) -> list[tuple[float, float]]:
        flat = self.rows[who, what]
        return list(zip(flat[::2], flat[1::2], strict=True))

    def of_process(self, who: str, pid: int) -> None:
        status = Path(f"/proc/{pid}/status").read_text()
        found = dict(re.findall(r"^(RssAnon|Threads):\s+(\d+)", status, re.MULTILINE))
        self.add(who, "memory", int(found["RssAnon"]) / 1024)
        self.add(who, "threads", int(found["Threads"]))
        self.add(who, "descriptors", len(os.listdir(f"/proc/{pid}/fd")))


class Load:
    """What comes in: about so many jobs a second, of every kind."""

    def __init__(self, rate: float) -> None:
        import soak_app

        self.soak_app, self.rate = soak_app, rate
        self.sent = 0
        self.numbers = count(1)

    async def run(self, until: float) -> None:
        await self.flood()
        due = time.monotonic()
        while time.monotonic() < until:
            await self.burst(max(10, int(self.rate / 5)))
            due = max(due + 0.2, time.monotonic() - 1)
            await asyncio.sleep(max(0, due - time.monotonic()))

    async def flood(self) -> None:
        """Threads for every slot, buffers for a whole backlog."""
        await self.soak_app.thread.enqueue_many([{"milliseconds": 200}] * 100)
        while self.sent < FLOOD:
            await self.burst(1000)

    async def burst(self, many: int) -> None:
        import qbull

        soak_app, n = self.soak_app, next(self.numbers)
        await soak_app.turn.enqueue_many([{"number": i} for i in range(many // 2)])
        await asyncio.gather(
            *(soak_app.step.enqueue(key=f"k{(n * 7 + i) % 500}", number=n * 100 + i) for i in range(many // 4)),
            *(soak_app.gather.enqueue(i) for i in range(many // 10)),
            *(soak_app.turn.options(delay=0.5).enqueue(i) for i in range(many // 10)),
            *(soak_app.thread.enqueue(i) for i in range(2)),
            soak_app.slow.enqueue(n), soak_app.unique.enqueue(n // 20), soak_app.report.enqueue(n),
        )  # fmt: skip
        self.sent += many + 5
        if n % 5 == 0:
            await (await soak_app.process.enqueue(n)).result(timeout=60)
            stopped = await soak_app.wait.options(delay=30).enqueue(1)
            await stopped.cancel()
            running = await soak_app.wait.enqueue(30)
            await running.cancel()
            await soak_app.late.enqueue()
            flow = qbull.chain(
                soak_app.turn.step(n),
                qbull.group(soak_app.turn.step(1), soak_app.turn.step(2)),
                soak_app.sum_up.step(),
            )
            await (await flow.enqueue()).result(timeout=60)


class Visitor:
    """Somebody at the API: looks, acts, listens, logs in and out."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.answers = 0
        self.refusals: dict[str, int] = defaultdict(int)

    async def run(self, until: float) -> None:
        for turn in count(-OPERATIONS):
            if time.monotonic() > until:
                return
            bearer = {"authorization": f"Bearer {self.token}"}
            async with httpx.AsyncClient(
                base_url=self.url, headers=bearer, timeout=30, trust_env=False
            ) as client:
                if turn < 0:  # as many as are kept
                    await self.ask(client, "POST", "/api/queues/keyed/redrive", json={"limit": 1})
                    continue
                await self.look(client)
                if turn % 5 == 0:
                    await self.act(client)
                    await self.listen(client)
            if turn % 20 == 0:
                await self.log_in_and_out()
            await asyncio.sleep(0.5)

    async def ask(self, client: httpx.AsyncClient, method: str, path: str, **more: Any) -> httpx.Response:
        answer = await client.request(method, path, **more)
        self.answers += 1
        if answer.status_code >= 400:
            self.refusals[f"{method} {path}: {answer.status_code} {answer.text[:80]}"] += 1
        return answer

    async def look(self, client: httpx.AsyncClient) -> None:
        for path in ("/api/queues/stats", "/api/queues/keyed/jobs?state=failed&start=0&end=20", "/metrics", "/api/workers",
                     "/api/queues/keyed/failures", "/api/system", "/api/schedules", "/ui"):  # fmt: skip
            await self.ask(client, "GET", path)

    async def act(self, client: httpx.AsyncClient) -> None:
        made = await self.ask(
            client, "POST", "/api/queues/plain/jobs", json={"task": "turn", "payload": {"number": 1}}
        )
        await self.ask(client, "GET", made.headers["location"])
        for path in ("/api/queues/idle/pause", "/api/queues/idle/resume", "/api/schedules/each-second/run"):
            await self.ask(client, "POST", path)
        await self.ask(client, "POST", "/api/queues/keyed/redrive", json={"limit": 5})

    async def listen(self, client: httpx.AsyncClient) -> None:
        async with client.stream("GET", "/api/events") as stream:
            lines = 0
            async for _ in stream.aiter_lines():
                lines += 1
                if lines > 20:
                    return

    async def log_in_and_out(self) -> None:
        headers = {"origin": self.url}
        async with httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=30, trust_env=False
        ) as client:
            await self.ask(client, "POST", "/api/login", json={"password": PASSWORD})
            await self.ask(client, "GET", "/api/queues/stats")
            await self.ask(client, "POST", "/api/logout")


@contextlib.asynccontextmanager
async def running(
    command: list[str], environment: dict[str, str], output: Path
) -> AsyncIterator[subprocess.Popen[bytes]]:
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "qbull.cli.main", *command],
            env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 60)
        finally:
            process.kill()


async def wait_for(look: Callable[[], Awaitable[Any]], within: float = 60.0) -> Any:
    deadline = time.monotonic() + within
    while not (found := await look()):
        if time.monotonic() > deadline:
            raise SystemExit("soak: the processes did not get ready in time")
        await asyncio.sleep(0.05)
    return found


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


async def kinds_of_names(store: Any) -> Counter[str]:
    """How many names of each kind, those with a lifetime too."""
    found: Counter[str] = Counter()
    cursor = b"0"
    while True:
        cursor, some = await store.server.call("SCAN", cursor, "COUNT", 1000)
        found.update(name.rpartition(b"}:")[2].decode("utf-8", "replace").partition(":")[0] for name in some)
        if cursor == b"0":
            return found


async def sample(samples: Samples, store: Any, pids: dict[str, int]) -> None:
    for who, pid in pids.items():
        samples.of_process(who, pid)
    info = (await store.server.call("INFO")).decode()
    figures = dict(re.findall(r"^(used_memory|connected_clients):(\d+)", info, re.MULTILINE))
    trail = await store.server.call("MEMORY", "USAGE", store.names.trail) or 0
    samples.add("server", "used_memory", (int(figures["used_memory"]) - trail) / MIB)
    samples.add("server", "connections", int(figures["connected_clients"]))
    names, with_a_lifetime = re.findall(r"^db0:keys=(\d+),expires=(\d+)", info, re.MULTILINE)[0]
    samples.add("server", "names", int(names) - int(with_a_lifetime))
    samples.kinds = [*samples.kinds[:1], await kinds_of_names(store)]


@dataclass
class Outcome:
    samples: Samples
    seconds: float
    sent: int
    answers: int
    refusals: dict[str, int]
    faults: list[str]


async def soak(seconds: float, rate: float, leak: bool, directory: Path) -> Outcome:
    from qbull.embedded.server import EmbeddedServer
    from qbull.store.store import Store

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    embedded = await asyncio.to_thread(EmbeddedServer.open, directory / "valkey")
    url = f"unix://:{embedded.password}@{embedded.socket}?db=0"
    os.environ["SOAK_URL"] = url
    token = "a token for the soak, long enough"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        "QUEUES_UI_PASS": PASSWORD, "QBULL_ADMIN_TOKEN": token, "SOAK_LEAK": "yes" if leak else "no",
    }  # fmt: skip
    sys.path.insert(0, str(HERE))
    store = Store(url, "soak")
    load = Load(rate)
    output = directory / "serve.out"
    try:
        async with (
            running(["worker", "soak_app:app"], environment, directory / "worker.out") as worker,
            running(["serve", "soak_app:app", "--port", "0"], environment, output) as api,
        ):
            address = (await wait_for(lambda: said(output, r"http://[\d.]+:\d+"))).group()
            await wait_for(lambda: said(directory / "worker.out", "."))
            await wait_for(lambda: store.server.call("DBSIZE"))
            server = int(re.search(r"process_id:(\d+)", (await store.server.call("INFO")).decode()).group(1))
            pids = {"worker": child_of(worker.pid), "its parent": worker.pid, "API": api.pid, "server": server,
                    "producer": os.getpid()}  # fmt: skip
            visitor = Visitor(address, token)
            samples = Samples()
            until = time.monotonic() + seconds
            jobs = [asyncio.create_task(load.run(until)), asyncio.create_task(visitor.run(until))]
            while not all(job.done() for job in jobs):
                await sample(samples, store, pids)
                await asyncio.wait(jobs, timeout=SAMPLE, return_when=asyncio.FIRST_EXCEPTION)
                for job in jobs:
                    if job.done():
                        job.result()
            assert child_of(worker.pid) == pids["worker"], "the worker process was replaced meanwhile"
            await drain(load.soak_app)
        from conftest import every_fault, strays

        faults = await every_fault(store) + [
            f"a name without a lifetime: {name}" for name in await strays(store)
        ]
    finally:
        await load.soak_app.app.close()
        await store.close()
        await asyncio.to_thread(embedded.close)
    return Outcome(samples, seconds, load.sent, visitor.answers, visitor.refusals, faults)


async def said(file: Path, pattern: str) -> re.Match[str] | None:
    return re.search(pattern, file.read_text()) if file.exists() else None


async def drain(soak_app: Any) -> None:
    """Wait until nothing is left to do."""
    queues = (soak_app.plain, soak_app.keyed, soak_app.limited)

    async def none_left() -> bool:
        stats = [await queue.stats() for queue in queues]
        return all(s.waiting + s.active + s.delayed == 0 for s in stats)

    await wait_for(none_left, 120)


def table(outcome: Outcome, warm: float) -> tuple[str, int]:
    """The table, and how many of its rows leak."""
    from trend import trend

    lines = [f"{'':11} {'':12} {'first':>9} {'last':>9} {'highest':>9} {'gained':>9} {'allowed':>9}"]
    leaks = 0
    for who, what in outcome.samples.rows:
        samples = outcome.samples.pairs(who, what)
        bound = BOUNDS[what]
        found = trend([each for each in samples if each[0] >= warm], bound.share, bound.least)
        leaks += found.leaks
        digits = 2 if bound.unit else 0
        cells = (found.first, found.last, found.highest, found.growth, found.allowed)
        numbers = " ".join(f"{cell:9.{digits}f}" for cell in cells)
        lines.append(f"{who:11} {what:12} {numbers} {bound.unit:4}{'LEAKS' if found.leaks else ''}".rstrip())
        if found.leaks and what == "names":
            more = outcome.samples.kinds[-1] - outcome.samples.kinds[0]
            lines.append(
                "  since the beginning: " + ", ".join(f"{n} {kind}" for kind, n in more.most_common(8))
            )
    return "\n".join(lines), leaks


def main() -> int:
    parser = argparse.ArgumentParser(description="steady load; nothing may grow")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=300, help="jobs a second, about (300)")
    parser.add_argument("--out", type=Path, help="write the samples into this file, as JSON")
    parser.add_argument("--leak", action="store_true", help="let a task leak: the soak must see it")
    options = parser.parse_args()
    seconds = options.minutes * 60
    warm = min(max(seconds / 4, 30), 300)
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    with tempfile.TemporaryDirectory(prefix="qbull-soak-") as directory:
        outcome = asyncio.run(soak(seconds, options.rate, options.leak, Path(directory)))
    text, leaks = table(outcome, warm)
    if options.out is not None:
        rows = [[*row, outcome.samples.pairs(*row)] for row in outcome.samples.rows]
        options.out.write_text(json.dumps(rows))
    print(
        f"{outcome.sent:,} jobs and {outcome.answers:,} requests in {seconds:.0f} s; the first {warm:.0f} s are warm-up"
    )
    print(text)
    for fault in (*outcome.faults, *(f"{times} times {what}" for what, times in outcome.refusals.items())):
        print(f"fault: {fault}")
    print(f"{leaks} leaks, {len(outcome.faults)} faults, {sum(outcome.refusals.values())} refused requests")
    return 1 if leaks or outcome.faults or outcome.refusals else 0


if __name__ == "__main__":
    raise SystemExit(main())
