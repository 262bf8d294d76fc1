"""History: what each process of a campaign writes down for itself, in files that only grow, and how they are read afterwards.

A record is in the kernel's hands before the next step is taken, so a killed process has written all that it did. Times are
those of the monotonic clock, which all processes of one machine share and which no wrong time of day changes.

    <name>.runs     of a worker process: jobs begun, ended, failed
    <name>.sent     of a producer: each batch, before it is sent; behind its head the keys of its jobs
    <name>.acks     of a producer: each batch that was acknowledged
    <name>.words    of anybody: lines of JSON, each with `at`
"""

from __future__ import annotations

import json
import os
import struct
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

RUN = struct.Struct("<BBHIIq")
HEAD = struct.Struct("<IIIq")
ACK = struct.Struct("<IIqq")

BEGUN, DONE, FAILED, DEAD, LEFT = 1, 2, 3, 4, 5
"""It began; it had its effect; it failed and is tried again; it failed for good; it was interrupted and given back."""


class Run(NamedTuple):
    kind: int
    attempt: int
    source: int
    key: int
    number: int
    at: int


class Batch(NamedTuple):
    """What was sent together. Each job is the next one of its key. `delay_ms`: these are for later, each with a key of its own."""

    number: int
    delay_ms: int
    at: int
    keys: array[int]


class Ack(NamedTuple):
    """`tries`: how often the batch was sent; `at` is when it was acknowledged, `began` when it was sent first."""

    number: int
    tries: int
    began: int
    at: int


class Book:
    """A file of records. It is opened when the first one is written: after the fork, in the process that writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def write(self, data: bytes) -> None:
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(self._fd, data)

    def say(self, **words: Any) -> None:
        self.write(json.dumps({"at": time.monotonic_ns(), **words}).encode() + b"\n")


def runs_in(path: Path) -> Iterator[Run]:
    data = path.read_bytes()
    return map(Run._make, RUN.iter_unpack(data[: len(data) // RUN.size * RUN.size]))


def batches_in(path: Path) -> Iterator[Batch]:
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while at + HEAD.size <= len(data):
        number, many, delay_ms, when = HEAD.unpack_from(data, at)
        at += HEAD.size
        keys = array("I", data[at : at + 4 * many])
        at += 4 * many
        yield Batch(number, delay_ms, when, keys)


def acks_in(path: Path) -> list[Ack]:
    data = path.read_bytes() if path.exists() else b""
    return [Ack._make(fields) for fields in ACK.iter_unpack(data[: len(data) // ACK.size * ACK.size])]


def words_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
