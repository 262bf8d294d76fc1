"""The exception by which RQ stops a job that takes too long."""

from __future__ import annotations


class JobTimeoutException(Exception):
    """Never raised here: a plain function cannot be interrupted, so its job fails without it.

    A coroutine gets asyncio.CancelledError. The class exists so that `except JobTimeoutException` compiles.
    """
