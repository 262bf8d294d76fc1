"""A plugin of pytest that runs Django's own `tests/tasks` with qbull in the place of Django's two backends.

The dummy backend only stores tasks: here they wait on a server. The immediate backend runs them: here a worker does.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

sys.path.insert(0, os.getcwd())  # the Django that the tests belong to, not the installed one

numbers = count()


def provide_names_of_python_3_12() -> None:
    """Django 6 wants Python 3.12. Its tasks need only these two functions of it."""
    if hasattr(inspect, "markcoroutinefunction"):
        return
    before, mark = inspect.iscoroutinefunction, asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]

    def marked(function: Any) -> Any:
        function._is_coroutine = mark
        return function

    def is_coroutine_function(function: Any) -> bool:
        return before(function) or getattr(function, "_is_coroutine", None) is mark

    inspect.markcoroutinefunction = marked  # type: ignore[attr-defined]
    inspect.iscoroutinefunction = is_coroutine_function  # type: ignore[assignment]


def pytest_configure() -> None:
    provide_names_of_python_3_12()
    os.environ["QBULL_URL"] = os.environ["SUITE_SERVER"]
    import django
    from django.conf import settings

    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    settings.configure(DATABASES={"default": database}, USE_TZ=True, SECRET_KEY="x")
    django.setup()
    replace_backends()


def replace_backends() -> None:
    from django.tasks.backends import dummy, immediate

    from qbull.app import App
    from qbull.contrib.django.tasks import QbullBackend, _blocking

    class ServerBackend(QbullBackend):
        """Each instance has a prefix of its own on the server, so `clear` has nothing to do."""

        def __init__(self, alias: str, params: dict[str, Any]) -> None:
            os.environ["QBULL_PREFIX"] = f"suite{next(numbers)}"
            super().__init__(alias, params)

        def clear(self) -> None: ...

    class WorkerBackend(ServerBackend):
        """A worker runs the task before the call returns."""

        def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            made = super().enqueue(task, args, kwargs)
            _blocking(lambda: self.app.run_sync(drain(self.app)))
            return QbullBackend.get_result(self, made.id)

        async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            made = await super().aenqueue(task, args, kwargs)
            await drain(self.app)
            return await QbullBackend.aget_result(self, made.id)

    async def drain(app: App) -> None:
        async with app.worker() as worker:
            await worker.drain()

    dummy.DummyBackend, immediate.ImmediateBackend = ServerBackend, WorkerBackend
