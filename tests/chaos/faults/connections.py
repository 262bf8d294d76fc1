"""Faults of connections: slow, cut in the middle of a reply, reset after the server has done it, deaf, silent, killed, paused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from process_table import owners_of
from tested_servers import TestedServers

CONNECTION_FAULTS = ("slow", "cut", "swallow", "deaf", "hole", "client kill", "script flush", "client pause")


class ConnectionFaults:
    """`processes` gives each supervisor with its workers: it is written down which of them were cut off."""

    def __init__(self, tested: TestedServers, processes: Callable[[], Mapping[int, list[int]]]) -> None:
        self._tested = tested
        self._processes = processes

    async def strike(self, kind: str, luck: random.Random) -> dict[str, Any] | None:
        target = await asyncio.to_thread(lambda: luck.choice(self._tested.primaries()))
        if not target.runs or target.stopped:
            return None
        match kind:
            case "client kill":
                whom = luck.choice(("normal", "normal", "pubsub"))
                await asyncio.to_thread(target.tell, "CLIENT", "KILL", "TYPE", whom)
            case "script flush":
                await asyncio.to_thread(target.tell, "SCRIPT", "FLUSH")
            case "client pause":
                milliseconds, what = luck.randint(20, 500), luck.choice(("WRITE", "ALL"))
                await asyncio.to_thread(target.tell, "CLIENT", "PAUSE", milliseconds, what)
            case _:
                return await self._disturb(kind, target.port, luck)
        return {"server": target.port}

    async def _disturb(self, kind: str, target: int, luck: random.Random) -> dict[str, Any]:
        seconds = luck.choice((0.1, 0.3, 0.6, luck.uniform(0.5, 4.0)))
        share = luck.choice((0.1, 0.25, 0.5, 1.0 if seconds < 1 else 0.25))
        delay = luck.uniform(0.005, 0.15)
        ports = await asyncio.to_thread(
            self._tested.proxies.strike, mood=kind, target=target, seconds=seconds, share=share, delay=delay
        )
        facts: dict[str, Any] = {"server": target, "share": share}
        if kind in ("deaf", "hole"):
            cut = await asyncio.to_thread(owners_of, ports, self._processes())
            facts["cut_off"] = sorted(cut)
        if kind not in ("cut", "swallow"):
            await asyncio.sleep(seconds)
        return facts
