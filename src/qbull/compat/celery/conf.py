"""Conf: the supported settings of Celery. Others are refused with a hint at the replacement.

Some settings describe what qbull always does; they are accepted with that value only.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta, tzinfo
from fnmatch import fnmatchcase
from typing import Any

from qbull.compat.celery.instead import CELERY_CONF_HINTS, CELERY_GUIDE
from qbull.compat.refusal import refuse
from qbull.errors import ConfigError

CELERY_DEFAULTS: dict[str, Any] = {
    "broker_url": None,
    "timezone": "UTC",
    "task_default_queue": "celery",
    "task_default_priority": None,
    "task_routes": None,
    "task_queues": (),
    "task_time_limit": None,
    "task_ignore_result": False,
    "task_default_retry_delay": 180,
    "result_expires": None,
    "worker_concurrency": None,
    "beat_schedule": {},
    "imports": (),
    "include": (),
}
FIXED_SETTINGS: dict[str, Any] = {
    "enable_utc": True,
    "task_serializer": "json",
    "result_serializer": "json",
    "event_serializer": "json",
    "accept_content": ["json"],
    "result_accept_content": ["json"],
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_track_started": True,
    "task_store_errors_even_if_ignored": True,
    "task_create_missing_queues": False,
    "task_always_eager": False,
    "result_extended": True,
    "worker_hijack_root_logger": False,
}
"""Settings with only one possible value, because qbull always behaves so; other values are refused."""
STARTUP_SETTINGS = frozenset(
    ("task_default_queue", "task_time_limit", "task_ignore_result", "result_expires", "worker_concurrency")
)
"""Tasks and queues are declared with these settings, so they must be set first."""


class Conf:
    """The settings: `app.conf.timezone = "Europe/Berlin"`, `app.conf.update(…)`.

    `changed` is called with the name and the new value before each change, and may raise.
    """

    def __init__(self, changed: Callable[[str, Any], None]) -> None:
        object.__setattr__(self, "_values", dict(CELERY_DEFAULTS))
        object.__setattr__(self, "_changed", changed)

    def update(self, *mappings: Mapping[str, Any], **settings: Any) -> None:
        for mapping in (*mappings, settings):
            for name, value in mapping.items():
                setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED_SETTINGS:
            if (list(value) if isinstance(value, tuple | set) else value) != FIXED_SETTINGS[name]:
                refuse("conf", {name: value}, CELERY_CONF_HINTS, ConfigError, CELERY_GUIDE)
            return
        if name not in CELERY_DEFAULTS:
            refuse("conf", {name: value}, CELERY_CONF_HINTS, ConfigError, CELERY_GUIDE)
        self._changed(name, value)
        self._values[name] = value

    def __getattr__(self, name: str) -> Any:
        if name in FIXED_SETTINGS:
            return FIXED_SETTINGS[name]
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"conf.{name}: {CELERY_CONF_HINTS.get(name, 'unknown setting')}") from None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    @property
    def zone(self) -> str:
        zone = self.timezone
        return str(getattr(zone, "key", zone)) if isinstance(zone, tzinfo) else str(zone or "UTC")

    @property
    def keep_for(self) -> float | None:
        expires = self.result_expires
        return expires.total_seconds() if isinstance(expires, timedelta) else expires

    def queue_of(self, task: str) -> str | None:
        """Return the queue that task_routes gives for a task."""
        routes = list(_routes(self.task_routes))
        for exact in (True, False):
            for pattern, queue in routes:
                if (pattern == task) if exact else fnmatchcase(task, pattern):
                    return queue
        return None

    def queues(self) -> list[str]:
        """Return the names of all queues in the settings, the default queue first."""
        given = self.task_queues
        named = [getattr(each, "name", each) for each in (given if given is not None else ())]
        for name in named:
            if not isinstance(name, str):
                raise ConfigError(f"conf.task_queues: {name!r} is not the name of a queue")
        routed = [queue for _, queue in _routes(self.task_routes)]
        return list(dict.fromkeys([self.task_default_queue, *named, *routed]))


def read_object(source: object, namespace: str | None) -> dict[str, Any]:
    """Return the settings in a module, an object or a dictionary.

    With a namespace, only those in upper case that start with it.
    """
    if isinstance(source, str):
        module, _, attribute = source.partition(":")
        source = importlib.import_module(module)
        source = getattr(source, attribute) if attribute else source
    names: Iterable[str] = source if isinstance(source, Mapping) else dir(source)
    values = {name: source[name] if isinstance(source, Mapping) else getattr(source, name) for name in names}
    if namespace:
        start = f"{namespace}_"
        return {
            name.removeprefix(start).lower(): value
            for name, value in values.items()
            if name.startswith(start)
        }
    return {
        name: value
        for name, value in values.items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and not callable(value)
    }


def _routes(given: Any) -> Iterable[tuple[str, str]]:
    """Yield the pairs of pattern and queue in their order."""
    if given is None:
        return
    if isinstance(given, Mapping):
        given = given.items()
    for each in given:
        if isinstance(each, Mapping):
            yield from _routes(each)
            continue
        if callable(each) or isinstance(each, str) or not isinstance(each[0], str):
            raise ConfigError(
                f"conf.task_routes: {each!r}: give patterns and queues, "
                "or use @app.task(queue=…) or apply_async(queue=…)"
            )
        pattern, route = each
        if isinstance(route, Mapping):
            refuse(
                "conf.task_routes: route",
                {name: value for name, value in route.items() if name != "queue"},
                {"priority": "set it on the task: @app.task(priority=…)"},
                ConfigError,
                CELERY_GUIDE,
            )
            route = route.get("queue")
        if not isinstance(route, str):
            raise ConfigError(f'conf.task_routes: "{pattern}": give the name of a queue')
        yield pattern, route
