"""A plugin of pytest that runs RQ's own tests with `rq` mapped to `qbull.compat.rq`.

It registers all functions of the tests, and gives each test an app with a prefix of its own.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from contextlib import suppress
from itertools import count
from types import ModuleType
from typing import Any

import pytest
from stand_ins import stand_in

import qbull
from qbull.compat import rq as door
from qbull.compat.rq.queue import Queue
from qbull.errors import QbullError

THEIR_OWN_MODULES = ("rq.connections", "rq.defaults", "rq.types", "rq.utils", "rq.version")
"""Helpers of RQ that its tests use, and that do not touch a server."""
DOOR_MODULES = (
    "cron",
    "decorators",
    "exceptions",
    "group",
    "job",
    "queue",
    "registry",
    "repeat",
    "results",
    "serializers",
    "timeouts",
    "worker",
)
ABSENT_MODULES = (
    "command",
    "cron_job_registry",
    "cron_scheduler_registry",
    "dependency",
    "executions",
    "intermediate_queue",
    "maintenance",
    "scheduler",
    "suspension",
    "webhook",
    "worker_pool",
    "worker_registration",
)


def map_modules() -> None:
    for name in THEIR_OWN_MODULES:
        importlib.import_module(name)
    own = {name: sys.modules[name] for name in THEIR_OWN_MODULES}
    for name in [name for name in sys.modules if name == "rq" or name.startswith("rq.")]:
        del sys.modules[name]
    sys.modules["rq"] = root = stand_in("rq", door)
    for name in DOOR_MODULES:
        sys.modules[f"rq.{name}"] = stand_in(f"rq.{name}", importlib.import_module(f"qbull.compat.rq.{name}"))
    for name in ABSENT_MODULES:
        sys.modules[f"rq.{name}"] = stand_in(f"rq.{name}", None)
    sys.modules.update(own)
    for name, module in list(sys.modules.items()):
        if name.startswith("rq."):
            setattr(root, name.removeprefix("rq."), module)


numbers = count()
current_module: list[ModuleType] = []


def register_all(queue: Queue) -> None:
    """What a user does with `queue.register(module)` in the module that workers load."""
    for module in {sys.modules["tests.fixtures"], *current_module}:
        for value in [*vars(module).values(), print]:
            if value is print or (inspect.isfunction(value) and value.__module__.startswith("tests.")):
                queue.register_callbacks(value)
                with suppress(QbullError, ValueError):
                    queue.register(value)


def patch_queue() -> None:
    old = Queue.__init__

    def init(self: Queue, *args: Any, **kwargs: Any) -> None:
        old(self, *args, **kwargs)
        register_all(self)

    Queue.__init__ = init  # type: ignore[method-assign]


def pytest_configure(config: pytest.Config) -> None:
    map_modules()
    patch_queue()
    sys.path.insert(0, os.getcwd())
    base = importlib.import_module("tests")
    base.min_redis_version = lambda version: lambda function: function  # type: ignore[attr-defined]

    def open_app(self: Any) -> None:
        self.connection = qbull.App(os.environ["SUITE_SERVER"], prefix=f"suite{next(numbers)}")
        type(self).connection = self.connection
        current_module[:] = [sys.modules[type(self).__module__]]

    def close_app(self: Any) -> None:
        self.connection.close_sync()

    case = base.RQTestCase
    case.setUpClass = case.tearDownClass = classmethod(lambda cls: None)
    case.setUp, case.tearDown = open_app, close_app
