"""`work(max_jobs=…)`: a worker in this process that ends after a number of runs."""

from __future__ import annotations

import asyncio
import threading
from weakref import WeakKeyDictionary

from qbull.app import App

MAX_STOP_SECONDS = 5.0
"""How long the last run waits until its worker has stopped to fetch jobs."""


class JobLimit:
    """Counts the runs of one worker. The last run starts when the worker fetches nothing more.

    Args:
        app: The app of the worker.
        max_jobs: The number of runs.
    """

    def __init__(self, app: App, max_jobs: int) -> None:
        self.reached = asyncio.Event()
        self._app = app
        self._left = max_jobs
        self._loop = asyncio.get_running_loop()
        self._is_stopping = threading.Event()

    def __enter__(self) -> JobLimit:
        _limits[self._app] = self
        return self

    def __exit__(self, *_: object) -> None:
        del _limits[self._app]

    def let_the_last_run_start(self) -> None:
        self._is_stopping.set()

    def count(self) -> None:
        self._left -= 1
        if not self._left:
            self._loop.call_soon_threadsafe(self.reached.set)
            self._is_stopping.wait(MAX_STOP_SECONDS)


_limits: WeakKeyDictionary[App, JobLimit] = WeakKeyDictionary()


def count_run(app: App) -> None:
    """Count a run if a worker of this process has a limit. Called in the thread of the run."""
    limit = _limits.get(app)
    if limit is not None:
        limit.count()
