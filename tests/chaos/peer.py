"""The keyed sequences of a campaign on another library, judged by the same checker: it must see what is lost and out of order.

    make chaos PEER=rq MINUTES=1 SEED=1

The server is the durable one of the campaigns. Workers are killed, nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.peers import PEERS, environment
from checker import Checker, Found, Verdict
from fleet import HERE, Member
from history import Book
from tested_servers import TestedServers, raised

from table import table


async def suffer(tested: TestedServers, directory: Path, peer: str, seconds: float, seed: int) -> Verdict:
    python = str(environment(peer, PEERS[peer].packages))
    surroundings = os.environ | {"CHAOS_DIRECTORY": str(directory), "CHAOS_URL": tested.url}

    def member(name: str, *arguments: str) -> Member:
        command = [python, str(HERE / f"peer_{peer}.py"), *arguments]
        return Member(name, command, surroundings, directory / f"{name}.out")

    workers = [member(f"worker-{n}", "work") for n in range(3)]
    senders = [member(f"sender-{n}", "send", str(n), "2", str(seed)) for n in range(2)]
    book, luck = Book(directory / "faults.words"), random.Random(seed)
    book.say(owners=[tested.nodes[0].port] * 8, before=0, since=0)
    try:
        for each in (*senders, *workers):
            each.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(luck.uniform(0.3, 1.5))
            worker = luck.choice(workers)
            assert worker.process is not None
            pid = worker.process.pid
            began = time.monotonic_ns()
            worker.kill()
            book.say(
                kind="kill worker",
                began=began,
                ended=time.monotonic_ns(),
                pids=[pid],
                at_ns=time.monotonic_ns(),
            )
            worker.start()
        for sender in senders:
            sender.send(signal.SIGTERM)
        left, before = -1, 0.0
        while left or time.monotonic() < before + 3:  # a worker has its last job when the list is empty
            now_left = int(PEERS[peer].left(tested.nodes[0].client))
            if now_left != left:
                left, before = now_left, time.monotonic()
            await asyncio.sleep(0.1)
    finally:
        for each in (*senders, *workers):
            each.kill()
    return Checker(directory, Found(replicated=True)).check()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peer", choices=["rq"], default="rq")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="qbull-chaos-"))
    history = directory / "history"
    history.mkdir()
    with raised("single", directory / "servers", given.seed) as tested:
        verdict = asyncio.run(suffer(tested, history, given.peer, given.minutes * 60, given.seed))
    again = f"make chaos PEER={given.peer} MINUTES={given.minutes:g} SEED={given.seed}"
    print(table(verdict, {"peer": given.peer, "seed": str(given.seed), "again": again}))
    shutil.rmtree(directory)
    return 0 if verdict.lost or verdict.disorder else 1


if __name__ == "__main__":
    sys.exit(main())
