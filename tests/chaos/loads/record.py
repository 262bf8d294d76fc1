"""Record: the small loads write down each event as a line of JSON, and their oracles read all lines when the campaign is over.

    asked   a producer is about to enqueue a job      told    the enqueue was acknowledged
    error   the enqueue raised                        began   a run of the job started
    done    the run had its effect                    failed  the run failed and is tried again
    dead    the run failed permanently                left    the run was interrupted: cancelled, or given back at a stop
    refused a call about an existing job raised

Each kind of load is a module of this package: its queue and its tasks, a producer (`produce`) and an oracle (`check`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from campaign_app import HERE
from history import Book

import qbull


class Event(msgspec.Struct, omit_defaults=True):
    at: int
    load: str
    what: str
    job: str = ""
    process: int = 0
    key: str = ""
    n: int = 0
    facts: dict[str, Any] = {}


@dataclass
class Report:
    """What an oracle says of its load: counts for the table, and every broken promise."""

    load: str
    counts: dict[str, int | float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    excused: dict[str, int] = field(default_factory=dict)

    @property
    def row(self) -> str:
        counted = [f"{value:,} {word}" for word, value in self.counts.items()]
        return ", ".join([*counted, f"faults {len(self.faults):,}"])


_books: dict[int, Book] = {}
_serial = count()
LIFE = f"{os.getpid()}.{time.monotonic_ns() % 10**9}"
"""This process and no other: keys and ids of a producer start with it, so that its next life starts anew."""


def note(load: str, what: str, job: str = "", key: str = "", n: int = 0, **facts: Any) -> None:
    process = os.getpid()
    book = _books.get(process)
    if book is None:
        book = _books[process] = Book(HERE / f"{process}-{time.monotonic_ns()}.events")
    event = Event(time.monotonic_ns(), load, what, job, process, key, n, facts)
    book.write(msgspec.json.encode(event) + b"\n")


def fresh_id(load: str) -> str:
    return f"{load}:{LIFE}:{next(_serial)}"


@contextmanager
def run_recorded(load: str, key: str = "", n: int = 0, **facts: Any) -> Iterator[int]:
    """Write down the run of the current job; gives the number of its attempt."""
    job = qbull.current_job()
    note(load, "began", job.id, key, n, attempt=job.attempt, **facts)
    try:
        yield job.attempt
    except qbull.Fail:
        note(load, "dead", job.id, key, n)
        raise
    except Exception:
        note(load, "failed", job.id, key, n)
        raise
    except BaseException:
        note(load, "left", job.id, key, n)
        raise
    note(load, "done", job.id, key, n)


async def ask(
    load: str, job: str, enqueue: Callable[[], Awaitable[Any]], *, key: str = "", n: int = 0, **facts: Any
) -> Any:
    """Enqueue until it is acknowledged, as a patient caller does."""
    note(load, "asked", job, key, n, **facts)
    while True:
        try:
            handle = await enqueue()
        except qbull.ServerError as error:
            note(load, "error", job, key, n, error=type(error).__name__, text=str(error)[:300])
            await asyncio.sleep(0.05)
            continue
        note(load, "told", job, key, n, created=handle.created, id=getattr(handle, "id", ""), **facts)
        return handle


def note_refusal(load: str, job: str, error: qbull.ServerError) -> None:
    """A call about a job that exists raised; it is repeated."""
    note(load, "refused", job, error=type(error).__name__, text=str(error)[:300])


_looks: dict[str, tuple[float, int]] = {}
ROOM = 200
"""Unfinished jobs of a small queue beyond which its producer rests."""


async def wait_for_room(queue: qbull.Queue, room: int = ROOM) -> None:
    """A slow machine gets no more than it can do."""
    while True:
        looked, unfinished = _looks.get(queue.name, (0.0, 0))
        if time.monotonic() > looked + 1:
            with suppress(qbull.ServerError):
                unfinished = (await queue.stats()).unfinished
            _looks[queue.name] = time.monotonic(), unfinished
        if unfinished < room:
            return
        await asyncio.sleep(0.25)


def events_in(directory: Path) -> dict[str, list[Event]]:
    """The events of each load, in the order of time."""
    found: dict[str, list[Event]] = defaultdict(list)
    decode = msgspec.json.Decoder(Event).decode
    for path in directory.glob("*.events"):
        for line in path.read_bytes().splitlines():
            event = decode(line)
            found[event.load].append(event)
    for events in found.values():
        events.sort(key=lambda event: event.at)
    return found
