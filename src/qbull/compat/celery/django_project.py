"""A Django project whose tasks were written for Celery: what Celery's Django fix-up does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from qbull.errors import ConfigError
from qbull.middleware import Middleware


def is_django_project() -> bool:
    """Whether DJANGO_SETTINGS_MODULE is set and Django is installed."""
    return bool(os.environ.get("DJANGO_SETTINGS_MODULE")) and find_spec("django") is not None


def is_django_settings(source: object) -> bool:
    """Whether an object is `django.conf.settings`."""
    module = sys.modules.get("django.conf")
    return module is not None and source is module.settings


def with_django_connections(middleware: Sequence[Middleware]) -> list[Middleware]:
    """Add the middleware that closes old database connections around each task, unless it is there."""
    from qbull.contrib.django import DjangoConnections

    if any(isinstance(each, DjangoConnections) for each in middleware):
        return list(middleware)
    return [*middleware, DjangoConnections()]


def set_up_django() -> None:
    """Load Django's applications before the modules with tasks are imported."""
    from qbull.contrib.django import set_up

    set_up()


def django_packages() -> list[str]:
    """Return the packages of Django's applications."""
    if not is_django_project():
        raise ConfigError(
            "autodiscover_tasks(): DJANGO_SETTINGS_MODULE is not set, or Django is not installed; "
            "name the packages"
        )
    from qbull.contrib.django import application_packages

    return application_packages()


def call_on_commit(call: Callable[[], Any]) -> None:
    """Make a call when the current transaction of Django commits; at once without one."""
    from qbull.contrib.django import call_when_committed

    call_when_committed(call)
