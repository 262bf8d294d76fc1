"""The options and the command line of the worker processes that `qbull worker` starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from qbull.app import App
from qbull.config import shortest_min_idle
from qbull.core.demand import WorkerOffer
from qbull.core.sharing import Sharing
from qbull.worker.assignment import Assignment
from qbull.worker.loop_limits import LOOP_WARNING_SECONDS
from qbull.worker.process.child import ProcessHandles


class WorkerOptions(msgspec.Struct, frozen=True):
    """The options that the supervisor passes to a worker process."""

    app: str
    grace: float
    sharing: Sharing
    queues: list[str] | None = None
    concurrency: int | None = None
    job_log: bool = True
    loop_warning: float = LOOP_WARNING_SECONDS
    max_jobs: int | None = None
    max_memory_bytes: int | None = None
    offer: WorkerOffer | None = None
    """The labels and resources, if they are not those of the environment."""


def min_idle_of(app: App, assignments: Sequence[Assignment]) -> float:
    """Seconds without a heartbeat after which a worker with these queues counts as dead."""
    return shortest_min_idle([each.settings for each in assignments], app.environment.min_idle)


def worker_process_argv(options: WorkerOptions, id: str, handles: ProcessHandles) -> list[str]:
    """The command line of a worker process.

    It has the options as JSON, the id of the worker, and three file descriptors: the crash board, a pipe that
    closes when the supervisor dies, and the control channel.
    """
    encoded = msgspec.json.encode(options).decode()
    descriptors = map(str, (handles.board, handles.life, handles.channel))
    return [sys.executable, "-m", "qbull.cli.worker_process", encoded, id, *descriptors]
