"""Repartitioning under faults: the number of partitions changes several times, by the command, which is killed as well.

The tests run small ones. A larger one on every topology, with a table at the end:

    PYTHONPATH=tests:tests/worker:tests/chaos python tests/chaos/repartitioning_run.py --seconds 60 --topology single
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import producer
from rebalancing import HERE, SHARINGS, TOPOLOGIES, RebalancingRun, Report, Site
from worker_processes import every

from topology import Node, _die_with_parent

COUNTS = (4, 16, 6)
PRODUCERS = 2


class RepartitioningRun(RebalancingRun):
    """The queue begins with the first of the counts. Two more producers are processes, killed and started again."""

    def __init__(
        self, site: Site, directory: Path, sharing: str, topology: str, *,
        seconds: float, seed: int, counts: Sequence[int] = COUNTS,
    ) -> None:  # fmt: skip
        super().__init__(site, directory, sharing, topology, seconds=seconds, seed=seed, partitions=counts[0])
        self._counts = counts[1:]
        self._producers: list[subprocess.Popen[bytes]] = []
        self._tending = True

    async def run(self, keys: int = 60) -> Report:
        for n in range(PRODUCERS):
            self._start_producer(n)
        self._changing = asyncio.create_task(self._change())
        tending = every(0.2, self._tend)
        try:
            return await super().run(keys)
        finally:
            self._changing.cancel()
            tending.cancel()
            for one in self._producers:
                one.kill()
                one.wait()

    async def _harm(self) -> None:
        await super()._harm()
        self._calm = False
        await self._changing
        self._tending = False
        for one in self._producers:
            one.terminate()
        for one in self._producers:
            code = await asyncio.to_thread(one.wait, 60)
            ended = code in (0, -signal.SIGTERM)  # it may have been told before it could listen
            assert ended or self._was_away(), self._said()
        self._calm = True

    async def _lose_servers(self) -> None:
        """What producers in other processes get acknowledged just then must be on the replica, too."""
        kill = self._site.lose_a_server

        async def rest_and_kill(producing: asyncio.Lock) -> Node:
            for one in self._producers:
                one.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.1)
            victim = await kill(producing)
            for one in self._producers:
                one.send_signal(signal.SIGCONT)
            return victim

        self._site.lose_a_server = rest_and_kill  # type: ignore[method-assign]
        await super()._lose_servers()

    async def _change(self) -> None:
        """Each number is asked for twice: the first command is killed wherever it is, the second one is not waited for."""
        pause = self._seconds / (len(self._counts) + 1)
        for count in self._counts:
            await asyncio.sleep(pause)
            first = self._command(count)
            await asyncio.sleep(self._luck.uniform(0.3, 1.0))
            first.kill()
            first.wait()
            self._count("command")
            self._kill_producer()
            await self._ask(count, "--no-wait")
            self._count("change")

    async def _ask(self, count: int, *options: str) -> None:
        """As a person does it: once more, where a server was away."""
        for _ in range(20):
            code = await asyncio.to_thread(self._command(count, *options).wait, 60)
            if code == 0:
                return
            assert self._was_away(), self._said()
        raise AssertionError(self._said())

    async def _worked_off(self) -> None:
        await super()._worked_off()
        await self._ask(self._counts[-1])
        layout = await self._app._client().router.layout(self._queue.settings)
        assert layout.partitions == self._counts[-1] and layout.settled, layout

    async def _judge(self) -> None:
        for n in range(PRODUCERS):
            self._sent |= producer.sent(f"p{n}", self._book(n))
        await super()._judge()

    def _command(self, count: int, *options: str) -> subprocess.Popen[bytes]:
        return self._spawn(
            "-m", "qbull.cli.main", "repartition", "work", str(count), "--prefix", "test", *options
        )

    def _start_producer(self, n: int) -> None:
        self._producers[n : n + 1] = [self._spawn(str(HERE / "producer.py"), f"p{n}")]

    def _tend(self) -> None:
        """As a service manager does: start again what has ended by itself, because its server was away at the start."""
        for n, one in enumerate(self._producers):
            if one.poll() and self._tending:
                self._start_producer(n)

    def _kill_producer(self) -> None:
        n = self._luck.randrange(PRODUCERS)
        self._producers[n].kill()
        self._producers[n].wait()
        self._count("producer")
        self._start_producer(n)

    def _book(self, n: int) -> Path:
        return self._pods.log.with_suffix(f".p{n}")

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "LOGGING_APP_URL": self._site.url,
            "LOGGING_APP_LOG": str(self._pods.log),
            "QBULL_URL": self._site.url,
            "TOTAL_PARTITIONS": str(COUNTS[0]),
            "PYTHONPATH": os.pathsep.join([str(HERE.parent / "worker"), os.environ.get("PYTHONPATH", "")]),
        }
        with self._pods.log.with_suffix(".spawned").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, *arguments],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip

    def _was_away(self) -> bool:
        return "cannot be reached" in self._said() or "cannot be used now" in self._said()

    def _said(self) -> str:
        return self._pods.log.with_suffix(".spawned").read_text()[-2000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sharing", action="append", choices=SHARINGS)
    parser.add_argument("--topology", action="append", choices=list(TOPOLOGIES))
    parser.add_argument("--counts", default="4,16,6")
    given = parser.parse_args()
    bad = 0
    for topology in given.topology or TOPOLOGIES:
        for sharing in given.sharing or SHARINGS[:1]:
            directory = Path(tempfile.mkdtemp(prefix="qbull-change-"))
            counts = [int(count) for count in given.counts.split(",")]
            began = time.monotonic()
            with TOPOLOGIES[topology](directory) as site:
                run = RepartitioningRun(
                    site, directory, sharing, topology, seconds=given.seconds, seed=given.seed, counts=counts
                )
                report = asyncio.run(run.run())
            shutil.rmtree(directory)  # it stays where something went wrong
            print(
                f"{report.row}; {given.counts} partitions, {dict(report.kills)}, {time.monotonic() - began:.0f} s"
            )
            harmed = report.backward if topology == "single" else []
            bad += len(report.lost) + len(report.disorder) + len(report.faults) + report.failed + len(harmed)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
