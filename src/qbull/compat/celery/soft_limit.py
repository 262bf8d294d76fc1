"""Soft time limits: an exception is raised in a function that runs too long, and the function may catch it.

Python raises it before the next line of Python code that the function runs. A call that blocks, such as a
read from a socket, returns first.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from qbull.compat.celery.exceptions import SoftTimeLimitExceeded

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc


def call_within(seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a plain function. After some seconds SoftTimeLimitExceeded is raised in it."""
    thread = ctypes.c_ulong(threading.get_ident())
    lock, has_ended = threading.Lock(), False

    def interrupt() -> None:
        with lock:
            if not has_ended:
                _raise_in_thread(thread, ctypes.py_object(SoftTimeLimitExceeded))

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        return function(*args, **kwargs)
    finally:
        with lock:
            has_ended = True
            # An exception that is under way must not reach the next job of this thread.
            _raise_in_thread(thread, None)
        timer.cancel()


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
