"""Portal: an event loop in a thread of its own, through which synchronous code uses an app."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from qbull.errors import QbullError

A = TypeVar("A")


class Portal:
    """An event loop in a background thread. Calls from many threads are batched together there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="qbull-portal", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, A]) -> A:
        """Run a coroutine in the portal's loop and return its result. Refused inside a running event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        coroutine.close()
        raise QbullError(
            "a synchronous call would block the running event loop; await the asynchronous one instead"
        )

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
