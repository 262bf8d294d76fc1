"""`current_app` and `current_task`: the newest app, and the task that runs here."""

from __future__ import annotations

from typing import Any

from qbull.compat.celery.run_events import current_run


class CurrentApp:
    """Stands for the app that was made last."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_newest_app(), name)

    def __repr__(self) -> str:
        return repr(_newest_app())


class CurrentTask:
    """Stands for the running task. It is false if none runs here."""

    def __getattr__(self, name: str) -> Any:
        run = current_run.get()
        return getattr(None if run is None else run.task, name)

    def __bool__(self) -> bool:
        return current_run.get() is not None

    def __repr__(self) -> str:
        run = current_run.get()
        return repr(None if run is None else run.task)


def _newest_app() -> Any:
    from qbull.compat.celery.app import newest_app

    return newest_app("current_app")


current_app = CurrentApp()
current_task = CurrentTask()
