"""Kinds of errors of a queue: exact counts of failures as they happened (lua/lib/errors.lua)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qbull.core.acknowledgement import series_start
from qbull.core.digits import whole_number
from qbull.store.connection import fan_out
from qbull.store.read.inspect import server_time
from qbull.store.verbs.partition import Partition

MINUTES_PER_HOUR = 60
MAX_ERROR_MINUTES = 1440
OTHER_KINDS = "-"
"""Failures of an hour that had too many kinds."""
_FACTS = re.compile(rb"(\d{1,18}) (\d{1,18}) (\d{1,18})(?:@(\d{1,18}))? (\d{1,18}) (.*)", re.DOTALL)


@dataclass(slots=True)
class ErrorKind:
    """Failures with the same kind of error.

    Attributes:
        fingerprint: Names the kind.
        error: The error without its details.
        total: How many there were since `first_ms`.
        first_ms: When the first of them happened.
        last_ms: When the newest happened.
        last_id: The job that failed last.
        minutes: How many there were in each minute, by the number of the minute.
        series: Start and end of the latest failures without a quiet hour, for each partition.
    """

    fingerprint: str
    error: str = ""
    total: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last_id: str = ""
    minutes: Counter[int] = field(default_factory=Counter)
    series: list[tuple[int, int]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many there were in the minutes that were read."""
        return self.minutes.total()

    @property
    def since_ms(self) -> int:
        """The start of the latest failures without a quiet hour."""
        return series_start(self.series)


async def read_error_kinds(partitions: Sequence[Partition], minutes: int) -> list[ErrorKind]:
    """The kinds of the last minutes, the most frequent first, and others that are still known after them."""
    if not partitions:
        return []
    last = int(await server_time(partitions[0]) // 60)
    first = last - minutes + 1
    hours = range(first // MINUTES_PER_HOUR, last // MINUTES_PER_HOUR + 2)
    names = ["errors", *(f"errors:{hour}" for hour in hours)]
    commands = [("HGETALL", partition.base + name) for partition in partitions for name in names]
    replies = await fan_out.run_commands(partitions[0].server, commands)
    kinds: dict[str, ErrorKind] = {}
    for at, reply in enumerate(replies):
        pairs = _pairs(reply)
        if at % len(names) == 0:
            for name, facts in pairs:
                _add_facts(kinds.setdefault(name.decode(), ErrorKind(name.decode())), facts)
        else:
            _add_counts(kinds, pairs, first)
    return sorted(kinds.values(), key=lambda kind: (-kind.count, -kind.last_ms))


def _pairs(reply: Any) -> list[tuple[bytes, bytes]]:
    return list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))


def _add_facts(kind: ErrorKind, facts: bytes) -> None:
    found = _FACTS.fullmatch(facts)
    if found is None:
        return
    total, first_ms, last_ms, length = (int(found[n]) for n in (1, 2, 3, 5))
    kind.total += total
    kind.series.append((int(found[4] or first_ms), last_ms))
    kind.first_ms = min(kind.first_ms or first_ms, first_ms)
    if last_ms >= kind.last_ms:
        kind.last_ms = last_ms
        kind.last_id = found[6][:length].decode("utf-8", "replace")
        kind.error = found[6][length:].decode("utf-8", "replace")


def _add_counts(kinds: dict[str, ErrorKind], pairs: list[tuple[bytes, bytes]], first: int) -> None:
    for name, n in pairs:
        text, _, fingerprint = name.decode("utf-8", "replace").partition(" ")
        minute, count = whole_number(text), whole_number(n)
        if minute is not None and count is not None and minute >= first:
            kinds.setdefault(fingerprint, ErrorKind(fingerprint)).minutes[minute] += count
