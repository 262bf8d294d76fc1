"""Finished jobs, read a bounded number at a time: for looking through them, and for doing something with many.

An entry of a stream holds up to 16 jobs that finished together; some of them may have been removed since. A place in a
stream is `<entry>`, and `<entry>/<n>` where the first n jobs of that entry are done with.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from qbull.core.job import State, unseal
from qbull.store.inspect import PLACES, Found
from qbull.store.partition import Partition

FIRST_STEP, LONGEST_STEP = 16, 256
"""Entries in one call."""
STEP_BYTES = 1 << 20
"""What a call should bring: the next one asks for more or less, as the records are small or large."""


@dataclass(frozen=True, slots=True)
class Span:
    """From which moment to which, in milliseconds of the server's clock, both included."""

    after_ms: int | None = None
    before_ms: int | None = None

    @property
    def oldest(self) -> str:
        return "-" if self.after_ms is None else str(max(self.after_ms, 0))

    @property
    def newest(self) -> str:
        return "+" if self.before_ms is None else str(max(self.before_ms, 0))


async def newest_first(
    partition: Partition, state: State, span: Span, cursor: str = ""
) -> AsyncGenerator[tuple[str, Found], None]:
    """Each job with the cursor behind it."""
    entry, _, done = cursor.partition("/")
    upto, skip, step = entry or span.newest, int(done or 0), FIRST_STEP
    while True:
        rows = await partition.server.call(
            "XREVRANGE", partition.base + state, upto, span.oldest, "COUNT", step
        )
        for (at, _), jobs in zip(rows, await _there(partition, state, rows), strict=True):
            for n, job in enumerate(reversed(jobs), 1):
                if job is not None and (n > skip or at.decode() != entry):
                    yield f"{at.decode()}/{n}", job
        if len(rows) < step:
            return
        upto, step = f"({rows[-1][0].decode()}", _next_step(step, rows)


async def oldest_first(partition: Partition, state: State, span: Span) -> AsyncGenerator[list[Found], None]:
    """What is there now, in lists of a bounded length; what finishes meanwhile is left out."""
    last = await partition.server.call("XREVRANGE", partition.base + state, span.newest, "-", "COUNT", 1)
    if not last:
        return
    after, upto, step = span.oldest, last[0][0], FIRST_STEP
    while True:
        rows = await partition.server.call("XRANGE", partition.base + state, after, upto, "COUNT", step)
        if not rows:
            return
        yield [job for jobs in await _there(partition, state, rows) for job in jobs if job is not None]
        after, step = f"({rows[-1][0].decode()}", _next_step(step, rows)


async def _there(partition: Partition, state: State, rows: list[Any]) -> list[list[Found | None]]:
    """The jobs of each entry; None for one that is not there any more."""
    ids = [id for _, fields in rows for id in fields[::2]]
    places = iter(await partition.server.call("HMGET", partition.base + "index", *ids) if ids else ())
    return [
        [
            _found(partition, state, entry, id, sealed) if next(places) == PLACES[state] + entry else None
            for id, sealed in zip(fields[::2], fields[1::2], strict=True)
        ]
        for entry, fields in rows
    ]


def _found(partition: Partition, state: State, entry: bytes, id: bytes, sealed: bytes) -> Found:
    return Found(
        id.decode("utf-8", "replace"),
        state,
        *unseal(sealed),
        finished_ms=int(entry.partition(b"-")[0]),
        partition=partition.number,
        place=PLACES[state] + entry,
    )


def _next_step(step: int, rows: list[Any]) -> int:
    bytes_ = sum(len(part) for _, fields in rows for part in fields)
    return max(1, min(step * 4, LONGEST_STEP, step * STEP_BYTES // max(bytes_, 1)))
