"""Conf: the settings of Celery.

Settings whose meaning would be lost are refused with a hint at the replacement. Others without a counterpart
are ignored, and one log line names them.
"""

from __future__ import annotations

import importlib
import logging
import types
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta, tzinfo
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from qbull.compat.celery.django_project import is_django_settings
from qbull.compat.celery.instead import CELERY_CONF_HINTS, CELERY_GUIDE
from qbull.compat.celery.support import UNREADABLE, WORKS, Support, differs, refused
from qbull.compat.refusal import refuse
from qbull.errors import ConfigError

log = logging.getLogger("qbull")

CELERY_DEFAULTS: dict[str, Any] = {
    "broker_url": None,
    "result_backend": None,
    "timezone": "UTC",
    "task_default_queue": "celery",
    "task_default_priority": None,
    "task_routes": None,
    "task_queues": (),
    "task_time_limit": None,
    "task_soft_time_limit": None,
    "task_ignore_result": False,
    "task_always_eager": False,
    "task_eager_propagates": False,
    "task_allow_error_cb_on_chord_header": False,
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
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_acks_on_failure_or_timeout": True,
}
"""Settings with only one possible value, because qbull always behaves so; other values are refused."""
DESCRIPTIVE_SETTINGS: dict[str, Any] = {
    "event_serializer": "json",
    "accept_content": ["json"],
    "result_accept_content": ["json"],
    "task_track_started": True,
    "task_store_errors_even_if_ignored": True,
    "task_create_missing_queues": False,
    "result_extended": True,
    "worker_hijack_root_logger": False,
}
"""Settings that describe what qbull always does. Other values change no job, so they are ignored."""
REFUSED_SETTINGS = frozenset(
    (
        "broker_use_ssl",
        "redis_backend_use_ssl",
        "task_annotations",
        "task_default_rate_limit",
        "task_inherit_parent_priority",
    )
)
"""Settings whose meaning would be lost."""
REFUSED_TRANSPORT_OPTIONS = frozenset(("global_keyprefix", "master_name", "sentinel_kwargs"))
OLD_SETTING_NAMES = {
    "BROKER_URL": "broker_url",
    "BROKER_USE_SSL": "broker_use_ssl",
    "BROKER_TRANSPORT_OPTIONS": "broker_transport_options",
    "CELERY_ACKS_LATE": "task_acks_late",
    "CELERY_ALWAYS_EAGER": "task_always_eager",
    "CELERY_ANNOTATIONS": "task_annotations",
    "CELERY_DEFAULT_QUEUE": "task_default_queue",
    "CELERY_DEFAULT_RATE_LIMIT": "task_default_rate_limit",
    "CELERY_ENABLE_UTC": "enable_utc",
    "CELERY_IGNORE_RESULT": "task_ignore_result",
    "CELERY_IMPORTS": "imports",
    "CELERY_INCLUDE": "include",
    "CELERY_QUEUES": "task_queues",
    "CELERY_RESULT_BACKEND": "result_backend",
    "CELERY_RESULT_SERIALIZER": "result_serializer",
    "CELERY_ROUTES": "task_routes",
    "CELERY_TASK_RESULT_EXPIRES": "result_expires",
    "CELERY_TASK_SERIALIZER": "task_serializer",
    "CELERY_TIMEZONE": "timezone",
    "CELERYBEAT_SCHEDULE": "beat_schedule",
    "CELERYBEAT_SCHEDULER": "beat_scheduler",
    "CELERYD_CONCURRENCY": "worker_concurrency",
    "CELERYD_TASK_SOFT_TIME_LIMIT": "task_soft_time_limit",
    "CELERYD_TASK_TIME_LIMIT": "task_time_limit",
}
"""Names from before Celery 4, which Celery still reads, with their present names."""
STARTUP_SETTINGS = frozenset(
    (
        "task_default_queue",
        "task_time_limit",
        "task_soft_time_limit",
        "task_ignore_result",
        "result_expires",
        "worker_concurrency",
    )
)
"""Tasks and queues are declared with these settings, so they must be set first."""
FOLLOWED_SETTINGS = ("task_always_eager", "task_eager_propagates")
"""Settings that tests of a Django project change with `override_settings`."""


class Conf:
    """The settings: `app.conf.timezone = "Europe/Berlin"`, `app.conf.update(…)`.

    `changed` is called with the name and the new value before each change, and may raise.
    """

    def __init__(self, changed: Callable[[str, Any], None]) -> None:
        object.__setattr__(self, "_values", dict(CELERY_DEFAULTS))
        object.__setattr__(self, "_changed", changed)
        object.__setattr__(self, "_followed", {})

    def read(self, source: object, namespace: str | None) -> None:
        """Take the settings of an object. Those for tests are read from Django's settings at each call."""
        loaded = _load(source)
        self.update(_settings_of(loaded, namespace))
        if namespace and is_django_settings(loaded):
            for name in FOLLOWED_SETTINGS:
                self._followed[name] = partial(
                    getattr, loaded, f"{namespace}_{name}".upper(), CELERY_DEFAULTS[name]
                )

    def update(self, *mappings: Mapping[str, Any], **settings: Any) -> None:
        ignored: list[str] = []
        for mapping in (*mappings, settings):
            for name, value in mapping.items():
                if not self._set(name, value):
                    ignored.append(name)
        _log_ignored(ignored)

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._set(name, value):
            _log_ignored([name])

    def _set(self, given: str, value: Any) -> bool:
        """Change a setting. Returns False if it has no effect here."""
        name = OLD_SETTING_NAMES.get(given, given)
        if name in CELERY_DEFAULTS:
            self._changed(name, value)
            self._values[name] = value
            self._followed.pop(name, None)
            return True
        kept = setting_support(name, value)
        if kept.level == "refused":
            refuse("conf", {given: None}, {given: kept.note}, ConfigError, CELERY_GUIDE)
        if name not in FIXED_SETTINGS:
            self._values[name] = value
        return kept.level == "works"

    def __getattr__(self, name: str) -> Any:
        values = self._values
        if name in self._followed:
            return self._followed[name]()
        for known in (FIXED_SETTINGS, values, DESCRIPTIVE_SETTINGS):
            if name in known:
                return known[name]
        raise AttributeError(f"conf.{name}: {CELERY_CONF_HINTS.get(name, 'unknown setting')}")

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    @property
    def zone(self) -> str:
        zone = self.timezone
        return str(getattr(zone, "key", zone)) if isinstance(zone, tzinfo) else str(zone or "UTC")

    @property
    def limits(self) -> dict[str, float | None]:
        """The time limits of tasks that have none of their own."""
        return {
            "time_limit": self.task_time_limit or None,
            "soft_time_limit": self.task_soft_time_limit or None,
        }

    @property
    def keep_for(self) -> float | None:
        expires = self.result_expires
        return expires.total_seconds() if isinstance(expires, timedelta) else expires

    def queue_of(self, task: str) -> str | None:
        """Return the queue that task_routes gives for a task."""
        routes = list(routes_of(self.task_routes))
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
        routed = [queue for _, queue in routes_of(self.task_routes)]
        return list(dict.fromkeys([self.task_default_queue, *named, *routed]))


def setting_support(name: str, value: Any = UNREADABLE) -> Support:
    """How far a setting is kept, by its present name.

    The addresses of broker and backend are checked when the app connects.
    """
    if name in CELERY_DEFAULTS:
        return WORKS
    hint = CELERY_CONF_HINTS.get(name, "qbull reads no such setting")
    if name in FIXED_SETTINGS:
        return WORKS if value is UNREADABLE or value == FIXED_SETTINGS[name] else refused(hint)
    if value and (name in REFUSED_SETTINGS or _names_another_place(name, value)):
        return refused(hint)
    # Many settings modules have None for options that they do not use.
    if value is None or _describes_qbull(name, value):
        return WORKS
    return differs(f"has no effect: {hint}")


def _load(source: object) -> object:
    """The object of a path such as "django.conf:settings"; any other object as it is."""
    if not isinstance(source, str):
        return source
    module, _, attribute = source.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def _settings_of(source: object, namespace: str | None) -> dict[str, Any]:
    """Return the settings in a module, an object or a dictionary.

    With a namespace, only those in upper case that start with it.
    """
    names: Iterable[str] = source if isinstance(source, Mapping) else dir(source)
    start = f"{namespace}_" if namespace else ""
    values = {
        name: source[name] if isinstance(source, Mapping) else getattr(source, name)
        for name in names
        if name.startswith(start)
    }
    if namespace:
        return {name.removeprefix(start).lower(): value for name, value in values.items()}
    return {
        name: value
        for name, value in values.items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and not callable(value)
    }


def _describes_qbull(name: str, value: Any) -> bool:
    """Whether a setting describes what qbull does in any case."""
    listed = list(value) if isinstance(value, tuple | set) else value
    return name in DESCRIPTIVE_SETTINGS and bool(listed == DESCRIPTIVE_SETTINGS[name])


def _names_another_place(name: str, value: Any) -> bool:
    """Whether options of the broker name a server or keys that an address of qbull must name."""
    is_readable = name == "broker_transport_options" and value is not UNREADABLE
    return is_readable and not REFUSED_TRANSPORT_OPTIONS.isdisjoint(value)


def _log_ignored(names: list[str]) -> None:
    """Log all settings of one call that have no effect, in one line."""
    if not names:
        return
    log.warning(
        "settings of Celery that have no effect here: %s; see docs/guides/%s.md",
        ", ".join(sorted(names)),
        CELERY_GUIDE,
    )
    if "beat_scheduler" in names:
        log.warning("conf.beat_scheduler: %s", CELERY_CONF_HINTS["beat_scheduler"])


def _are_routes(given: list[Any] | tuple[Any, ...]) -> bool:
    """Whether it is a list of pairs, and not one pair. Celery accepts a list of them within a tuple."""
    return bool(given) and all(isinstance(each, list | tuple) for each in given)


def routes_of(given: Any) -> Iterable[tuple[str, str]]:
    """Yield the pairs of pattern and queue in their order."""
    if given is None:
        return
    if isinstance(given, Mapping):
        given = given.items()
    for each in given:
        if isinstance(each, Mapping) or (isinstance(each, list | tuple) and _are_routes(each)):
            yield from routes_of(each)
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
