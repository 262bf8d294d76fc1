"""Unique jobs: of several with the same name, only one is enqueued within a window of time."""

from __future__ import annotations

from typing import NamedTuple

from qbull.core.unique import UniqueMode


class UniqueJob(NamedTuple):
    """A job to enqueue unless another one with the same unique name has won within the window."""

    id: str
    when: int | str
    record: bytes
    name: str
    mode: UniqueMode
    window_ms: int
    winner: str = ""
    """The job that has won according to an older partition, for `winner_ms` milliseconds more."""
    winner_ms: int = 0


class UniqueAnswer(NamedTuple):
    """The answer of a closed partition for one unique job: the id that has won, and whether it is the new
    job.

    If `new` is None, another partition decides. Then `id`, if there is one, has won here for `left_ms`
    milliseconds more, and `moving` says that it is on its way to another partition.
    """

    id: str
    new: bool | None
    left_ms: int
    moving: bool
