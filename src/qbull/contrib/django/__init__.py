"""Django: enqueue when a transaction is committed, and connections that are fresh for each job.

tasks.py has a backend for Django's own tasks; worker.py has the app that `qbull worker` runs for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import close_old_connections, connections, transaction

from qbull.middleware import Middleware
from qbull.task import Call
from qbull.worker.current import CurrentJob

P = ParamSpec("P")

_is_asynchronous: ContextVar[bool] = ContextVar("qbull_django_is_asynchronous", default=False)

__all__ = ["DjangoConnections", "on_commit"]


def on_commit(call: Call[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Enqueue a task, or a task with options, when the current transaction commits; at once without one.

    The arguments are checked now. If the server is unavailable at the commit, the data is stored but the job
    is lost. Jobs that must not be lost go into an outbox with `options(transaction=connection)`.

    Args:
        call: the task, or `task.options(…)`. The arguments of the task follow.
    """
    call.check(*args, **kwargs)
    call_when_committed(partial(call.enqueue_sync, *args, **kwargs))


def call_when_committed(call: Callable[[], Any]) -> None:
    """Make a call when the current transaction commits; at once without one."""
    transaction.on_commit(call)


def set_up() -> None:
    """Load the applications of the project, once."""
    if not apps.ready:
        django.setup()


def application_packages() -> list[str]:
    """Return the packages of the project's applications."""
    return [config.name for config in apps.get_app_configs()]


class DjangoConnections(Middleware):
    """Closes broken database connections around each task.

    Around plain functions it also closes those that are older than CONN_MAX_AGE.
    """

    @asynccontextmanager
    async def around_run(self, job: CurrentJob) -> AsyncIterator[None]:
        """Close broken connections of asynchronous tasks.

        These tasks share the thread of their connections, so another task may be using a connection that is
        only old. A cancelled task does not wait for that thread, in which its query may still hang.

        Args:
            job: the running job.
        """
        _is_asynchronous.set(False)
        try:
            yield
        except Exception:
            await _close_broken()
            raise

    @contextmanager
    def around_call(self, job: CurrentJob) -> Iterator[None]:
        """Close connections in the thread of a plain function, to which they belong.

        Args:
            job: the running job.
        """
        if asyncio._get_running_loop() is not None:
            _is_asynchronous.set(True)
            yield
            return
        close_old_connections()
        try:
            yield
        finally:
            close_old_connections()


async def _close_broken() -> None:
    if _is_asynchronous.get():
        await sync_to_async(_close_broken_here)()


def _close_broken_here() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.errors_occurred or connection.in_atomic_block:
            continue
        if connection.is_usable():
            connection.errors_occurred = False
        else:
            connection.close()
