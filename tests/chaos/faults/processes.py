"""Faults of processes: worker processes, supervisors, whole pods and producers are killed, frozen, restarted and deployed anew; clocks are wrong.

What operators do to a living system comes in the same line: a queue is repartitioned, PostgreSQL is restarted or crashes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet import Fleet, Member
from job_plan import MIN_IDLE

import qbull
from database import Postgres

PROCESS_FAULTS = (
    "kill process", "kill process", "kill pod", "kill supervisor", "stop process", "stop pod", "stop supervisor", "restart pod",
    "deploy", "deploy", "kill sender", "stop sender", "clock", "kill payer", "kill database", "repartition",
)  # fmt: skip
COUNTS = (1, 2, 3, 5)
"""Of partitions, for the queues that are repartitioned."""


class ProcessFaults:
    """`queues` are those that may be repartitioned."""

    def __init__(self, fleet: Fleet, database: Postgres | None, queues: Mapping[str, qbull.Queue]) -> None:
        self._fleet = fleet
        self._database = database
        self._queues = queues
        self.lacks = dict(fleet.lacks)
        if database is None:
            self.lacks |= dict.fromkeys(("kill payer", "kill database"), "there is no database")

    async def strike(self, kind: str, luck: random.Random) -> dict[str, Any] | None:
        pod, sender = luck.choice(self._fleet.pods), luck.choice(self._fleet.senders)
        match kind:
            case "kill process":
                return self._kill_process(pod, luck)
            case "kill pod" | "kill supervisor":
                return await self._kill_pod(pod, luck, alone=kind == "kill supervisor")
            case "stop process" | "stop supervisor" | "stop pod":
                return await self._stop(kind, pod, luck)
            case "restart pod":
                return await self._restart(pod, luck)
            case "deploy":
                return await self._deploy(pod, luck)
            case "kill sender":
                sender.kill()
                sender.start()
            case "stop sender":
                await self._freeze(sender.send, luck)
            case "clock":
                member = luck.choice(self._fleet.all)
                self._fleet.set_clock(member, luck.choice((0, 3600, -3600, luck.randint(-90, 90))))
                return {"member": member.name}
            case "kill payer":
                self._fleet.payers[0].kill()
                self._fleet.payers[0].start()
            case "kill database":
                await self._kill_database(luck)
            case "repartition":
                name = luck.choice(sorted(self._queues))
                count = luck.choice(COUNTS)
                await asyncio.wait_for(self._queues[name].repartition(count), 20)
                return {"queue": name, "count": count}
            case _:
                raise LookupError(kind)
        return {}

    def _kill_process(self, pod: Member, luck: random.Random) -> dict[str, Any] | None:
        children = pod.children()
        if not children:
            return None
        pid = luck.choice(children)
        _signal(pid, signal.SIGKILL)
        return {"pids": [pid], "at_ns": time.monotonic_ns()}

    async def _kill_pod(self, pod: Member, luck: random.Random, *, alone: bool) -> dict[str, Any] | None:
        """All processes of it at once, as when a machine is gone; or its supervisor alone, whose workers must end by themselves."""
        if not pod.runs or pod.process is None:
            return None
        pids = pod.children()
        if alone:
            pod.wanted = False
            pod.process.kill()
            pod.process.wait()
            until = time.monotonic() + 10
            while any(_is_alive(pid) for pid in pids) and time.monotonic() < until:
                await asyncio.sleep(0.01)
        else:
            pod.kill()
        at = time.monotonic_ns()
        await asyncio.sleep(luck.uniform(0.0, 2.0))
        pod.start()
        return {"pids": pids, "at_ns": at}

    async def _stop(self, kind: str, pod: Member, luck: random.Random) -> dict[str, Any] | None:
        """A worker process, a supervisor, whose workers go on without heartbeats, or both."""
        children = pod.children()
        if not children or pod.process is None:
            return None
        supervisor = pod.process.pid
        if kind == "stop process":
            pid = luck.choice(children)
            await self._freeze(lambda what: _signal(pid, what), luck)
            return {"frozen": [pid]}
        whom = pod.send if kind == "stop pod" else lambda what: _signal(supervisor, what)
        await self._freeze(whom, luck)
        return {"frozen": [supervisor, *children]}

    async def _freeze(self, send: Callable[[signal.Signals], None], luck: random.Random) -> None:
        """Mostly for less than it takes to be called dead, sometimes for longer."""
        send(signal.SIGSTOP)
        try:
            await asyncio.sleep(luck.choice((0.1, 0.4, MIN_IDLE / 2, luck.uniform(1.0, 2.5) * MIN_IDLE)))
        finally:
            send(signal.SIGCONT)

    async def _restart(self, pod: Member, luck: random.Random) -> dict[str, Any] | None:
        """With SIGTERM, but not always with the patience to wait."""
        if not pod.runs or not pod.children():
            return None
        assert pod.process is not None
        pids = pod.children()
        pod.wanted = False
        _signal(pod.process.pid, signal.SIGTERM)
        try:
            code: int | str = await asyncio.wait_for(_ended(pod), luck.choice((15.0, 15.0, 0.3)))
        except TimeoutError:
            code = "killed"
            pod.kill()
        at = time.monotonic_ns()
        pod.start()
        return {"code": code, "pids": pids if code == "killed" else [], "at_ns": at}

    async def _deploy(self, pod: Member, luck: random.Random) -> dict[str, Any] | None:
        """The other version of the code takes the place of this one. One pod at least has the new version."""
        others = [other for other in self._fleet.pods if other is not pod]
        newest_elsewhere = any(other.version == 2 for other in others)
        version = 1 if pod.version == 2 and newest_elsewhere else 2
        pod.environment["CHAOS_VERSION"] = str(version)
        facts = await self._restart(pod, luck)
        return None if facts is None else facts | {"version": version}

    async def _kill_database(self, luck: random.Random) -> None:
        """Stopped, or crashed: then it replays its log."""
        assert self._database is not None
        how = luck.choice((signal.SIGINT, signal.SIGQUIT))
        await asyncio.to_thread(self._database.stop, how)
        await asyncio.sleep(luck.uniform(0.0, 2.0))
        self._database.launch()
        await asyncio.to_thread(self._database.wait_until_up)

    async def heal(self) -> None:
        """Nothing is frozen, dead or wrong any more, and the deploy is complete: all pods have the new version."""
        for member in self._fleet.all:
            member.send(signal.SIGCONT)
            self._fleet.set_clock(member, 0)
            if not member.runs:
                member.start()
        if self._database is not None and not self._database.is_running:
            self._database.launch()
            await asyncio.to_thread(self._database.wait_until_up)
        for pod in self._fleet.pods:
            if pod.version == 1:
                pod.environment["CHAOS_VERSION"] = "2"
                pod.send(signal.SIGCONT)
                if pod.process is not None:
                    _signal(pod.process.pid, signal.SIGTERM)  # it is started again when it has ended
                pod.wanted = True


def _signal(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


async def _ended(member: Member) -> int:
    assert member.process is not None
    while member.runs:
        await asyncio.sleep(0.02)
    return int(member.process.returncode)
