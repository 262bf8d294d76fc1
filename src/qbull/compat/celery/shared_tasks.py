"""`@shared_task` before the app exists: the task is declared when the app is there and the task is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery

_waiting: list[SharedTask] = []


class SharedTask:
    """Stands for a task whose app does not exist yet. Later it behaves as the task.

    Args:
        function: The function of the task.
        traits: The options of `@shared_task`.
    """

    def __init__(self, function: Callable[..., Any], traits: Mapping[str, Any]) -> None:
        self._function = function
        self._traits = dict(traits)
        self._task: Any = None
        self.__name__ = getattr(function, "__name__", "")
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        _waiting.append(self)

    def declare_in(self, app: Celery) -> None:
        """Declare the task in an app.

        Args:
            app: The app.
        """
        self._task = app.task(self._function, **self._traits)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._declared()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # Asked by tools that look at modules.
        return getattr(self._declared(), name)

    def __repr__(self) -> str:
        return f"<SharedTask: {self.__module__}.{self.__name__}>" if self._task is None else repr(self._task)

    def _declared(self) -> Any:
        if self._task is None:
            from qbull.compat.celery.app import newest_app

            declare_waiting_tasks(newest_app(f"@shared_task {self.__module__}.{self.__name__}"))
        return self._task


def declare_waiting_tasks(app: Celery) -> None:
    """Declare the tasks that were waiting for an app.

    Args:
        app: The app.
    """
    while _waiting:
        _waiting.pop(0).declare_in(app)
