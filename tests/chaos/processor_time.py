"""Processor time: which kind of process of a campaign uses how much of it, and how long the machine was idle."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from process_table import PROC, Entry, entries

KINDS = {
    "valkey-server": "servers",
    "redis-server": "servers",
    "proxy.py": "proxies",
    "qbull.cli.": "workers",
    "cpu_process": "workers",
    "sender.py": "producers",
    "small_producer.py": "producers",
    "loads.transfers": "producers",
    "postgres": "PostgreSQL",
}
"""What a command line contains, the first that fits."""
TICKS = os.sysconf("SC_CLK_TCK")


class ProcessorTime:
    """Of this process and everything that it starts from now on. What a process used after the last look at it is not counted."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._root = os.getpid()
        self._used: dict[tuple[int, str], tuple[str, int]] = {}
        self.look()
        self._before = self._by_kind()
        self._first = self._machine()

    def look(self) -> None:
        found = {entry.pid: entry for entry in entries(self._proc)}
        ours: dict[int, bool] = {self._root: True}
        for entry in found.values():
            if self._is_ours(entry, found, ours):
                before = self._used.get(entry.identity)
                kind = before[0] if before and before[0] != "other" else self._kind(entry.pid)
                self._used[entry.identity] = kind, entry.ticks

    def _is_ours(self, entry: Entry, found: dict[int, Entry], ours: dict[int, bool]) -> bool:
        """A process whose parent has died is still known from earlier looks."""
        known = ours.get(entry.pid)
        if known is None:
            parent = found.get(entry.parent)
            known = entry.identity in self._used or (
                parent is not None and self._is_ours(parent, found, ours)
            )
            ours[entry.pid] = known
        return known

    def _kind(self, pid: int) -> str:
        if pid == self._root:
            return "campaign"
        with suppress(OSError):
            command = (self._proc / str(pid) / "cmdline").read_bytes().decode(errors="replace")
            return next((kind for word, kind in KINDS.items() if word in command), "other")
        return "other"

    def _by_kind(self) -> Counter[str]:
        ticks = Counter[str]()
        for kind, many in self._used.values():
            ticks[kind] += many
        return ticks

    def _machine(self) -> tuple[int, int]:
        """Ticks of all processors, and those in which they were idle."""
        fields = list(map(int, (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:9]))
        return sum(fields), fields[3] + fields[4]

    def __str__(self) -> str:
        used = self._by_kind() - self._before
        (all_ticks, idle), (all_before, idle_before) = self._machine(), self._first
        elapsed = max(all_ticks - all_before, 1)
        shares = [f"{kind} {100 * ticks / elapsed:.0f} %" for kind, ticks in used.most_common()]
        return ", ".join([*shares, f"idle {100 * (idle - idle_before) / elapsed:.0f} %"])
