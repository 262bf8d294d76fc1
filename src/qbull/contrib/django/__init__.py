"""Django: enqueue when a transaction is committed, and connections that are fresh for each job.

A backend for Django's own tasks is in tasks.py, and what `qbull worker` is to be given for it in worker.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec

from django.db import close_old_connections, transaction

from qbull.middleware import Middleware
from qbull.task import Call
from qbull.worker.current import CurrentJob

P = ParamSpec("P")

__all__ = ["DjangoConnections", "on_commit"]


def on_commit(call: Call[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Enqueue a task, or a task with options, when the current transaction is committed; at once where there is none.

    The arguments are checked now. Where the server cannot be reached then, the data is there and the job is not: what must not
    be lost goes into an outbox with `options(transaction=connection)`.
    """
    call.check(*args, **kwargs)
    transaction.on_commit(partial(call.enqueue_sync, *args, **kwargs))


class DjangoConnections(Middleware):
    """Around each plain task: database connections that are broken, or older than CONN_MAX_AGE, are not used again."""

    @contextmanager
    def around_call(self, job: CurrentJob) -> Iterator[None]:
        """In the thread of the task, to which its connections belong. An asynchronous task has none of its own."""
        if asyncio._get_running_loop() is not None:
            yield
            return
        close_old_connections()
        try:
            yield
        finally:
            close_old_connections()
