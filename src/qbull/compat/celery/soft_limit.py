"""Soft time limits: an exception is raised in a function that runs too long, and the function may catch it.

Python raises it before the next line of Python code that the function runs. A call that blocks, such as a
read from a socket, returns first.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from qbull.compat.celery.exceptions import SoftTimeLimitExceeded

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc


def call_within(seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a plain function. After some seconds SoftTimeLimitExceeded is raised in it."""
    thread = ctypes.c_ulong(threading.get_ident())
    lock, has_ended, has_fired = threading.Lock(), False, False

    def interrupt() -> None:
        nonlocal has_fired
        with lock:
            if not has_ended:
                has_fired = True
                _raise_in_thread(thread, ctypes.py_object(SoftTimeLimitExceeded))

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        return function(*args, **kwargs)
    finally:
        timer.cancel()
        with lock:
            has_ended = True
        if has_fired:
            _take_exception()


def _take_exception() -> None:
    """Let an exception that is under way come up here, and not in the next job of this thread.

    It must not be withdrawn: CPython would then interrupt its loop for it before every call, for ever.
    """
    with suppress(SoftTimeLimitExceeded):
        for _ in range(10):
            pass


async def await_within(
    seconds: float, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> Any:
    """Await a coroutine function. After some seconds it is cancelled, and SoftTimeLimitExceeded is raised."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await function(*args, **kwargs)
    except TimeoutError:
        if not limit.expired():
            raise
        raise SoftTimeLimitExceeded(f"it ran longer than {seconds:g} s") from None
