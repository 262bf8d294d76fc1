"""A Celery program with some tasks and a worker, for the tests of canvases."""

from __future__ import annotations

from typing import Any

import qbull
from qbull.compat.celery import Celery
from qbull.worker.worker import Worker
from topology import wait_for

PATIENCE_SECONDS = 60


class CanvasProgram:
    """An app with some tasks, as Celery's manual has them."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        self.noted: list[Any] = []
        noted = self.noted

        @app.task
        def add(x, y=0):  # type: ignore[no-untyped-def]
            return x + y

        @app.task
        def total(numbers):  # type: ignore[no-untyped-def]
            return sum(numbers)

        @app.task
        def same(value):  # type: ignore[no-untyped-def]
            return value

        @app.task
        def fail(*args):  # type: ignore[no-untyped-def]
            raise LookupError("nothing here")

        @app.task
        def note(*args):  # type: ignore[no-untyped-def]
            noted.append(args)

        @app.task
        def note_id(task_id):  # type: ignore[no-untyped-def]
            noted.append(task_id)

        @app.task
        def note_error(request, error, traceback):  # type: ignore[no-untyped-def]
            noted.append((request.id, error, traceback))

        self.add, self.total, self.same, self.fail = add, total, same, fail
        self.note, self.note_id, self.note_error = note, note_id, note_error
        self.worker: Worker | None = None

    def work(self) -> None:
        """Start a worker, which knows all tasks that are declared by now."""
        if self.worker is None:
            self.worker = self.app.worker()
            self.app.run_sync(self.worker.start())

    def stop(self) -> None:
        """Stop the worker. `work` starts another one."""
        if self.worker is not None:
            self.app.run_sync(self.worker.stop())
            self.worker = None

    def get(self, result: Any) -> Any:
        """The result, with a worker running."""
        self.work()
        return result.get(timeout=PATIENCE_SECONDS)

    def settle(self) -> None:
        """Wait until all jobs have ended, callbacks and errbacks too."""
        self.work()
        wait_for(lambda: all(self._is_idle(queue) for queue in self.app.queues.values()), PATIENCE_SECONDS)

    def _is_idle(self, queue: qbull.Queue) -> bool:
        stats = self.app.run_sync(queue.stats())
        return not (stats.waiting or stats.delayed or stats.active)
