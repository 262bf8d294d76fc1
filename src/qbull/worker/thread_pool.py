"""Thread pool: run plain functions in threads, and return their results to the event loop in batches.

A thread takes calls until none is left, so quick functions run one after the other without a switch of
threads. Before it starts a call while others wait, it starts the next thread. So a function that blocks
holds up no other call.

Results gather, and the loop is woken once for all of them. A thread may leave this to the next one, which is
about to start: that one runs as soon as the function of the first one blocks, at the latest when the
interpreter switches threads (5 ms).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

Call = Callable[[], Any]


class ThreadPool:
    """For the event loop that runs when it is made.

    Args:
        size: Number of threads, and so of functions that run at a time.
        name: The threads are named after it.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._executor = ThreadPoolExecutor(size, thread_name_prefix=name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        # The rest is changed only while the lock is held.
        self._calls: deque[tuple[asyncio.Future[Any], Call]] = deque()
        self._ended: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        self._threads = 0
        self._is_starting = False
        self._is_loop_woken = False

    def run(self, call: Call) -> asyncio.Future[Any]:
        """Run a function in a thread. The future may be cancelled, the function cannot."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        future = self._loop.create_future()
        self._put([(future, call)])
        return future

    def replace(self, size: int, name: str) -> ThreadPool:
        """A new pool, which takes over the calls that wait. Functions that run finish in the old one."""
        pool = ThreadPool(size, name)
        pool._loop = self._loop
        pool._put(self._close())
        return pool

    def close(self) -> None:
        """Start nothing more. A function that runs goes on alone."""
        for future, _ in self._close():
            future.cancel()

    def _close(self) -> list[tuple[asyncio.Future[Any], Call]]:
        with self._lock:
            waiting = list(self._calls)
            self._calls.clear()
        self._executor.shutdown(wait=False)
        return waiting

    def _put(self, calls: list[tuple[asyncio.Future[Any], Call]]) -> None:
        with self._lock:
            self._calls.extend(calls)
            is_needed = self._needs_thread()
        if is_needed:
            self._executor.submit(self._work)

    def _needs_thread(self) -> bool:
        """Whether to start one more thread now. Counts it."""
        if not self._calls or self._is_starting or self._threads >= self._size:
            return False
        self._is_starting = True
        self._threads += 1
        return True

    def _work(self) -> None:
        """Run the calls that wait, in a thread."""
        with self._lock:
            self._is_starting = False
        self._wake_loop()
        while True:
            with self._lock:
                if not self._calls:
                    self._threads -= 1
                    break
                future, call = self._calls.popleft()
                is_needed = self._needs_thread()
                is_relieved = self._is_starting
            if is_needed:
                self._start_next()
            if not is_relieved:
                # Nobody else would wake the loop while this function runs.
                self._wake_loop()
            try:
                ended: tuple[asyncio.Future[Any], Any, BaseException | None] = (future, call(), None)
            except StopIteration as error:  # no future can carry it
                ended = (future, None, RuntimeError(f"the function raised {error!r}"))
            except BaseException as error:
                ended = (future, None, error)
            with self._lock:
                self._ended.append(ended)
            del future, call, ended
        self._wake_loop()

    def _start_next(self) -> None:
        try:
            self._executor.submit(self._work)
        except RuntimeError:
            # The pool was replaced meanwhile, and the calls are in the new one.
            with self._lock:
                self._is_starting = False
                self._threads -= 1

    def _wake_loop(self) -> None:
        with self._lock:
            if self._is_loop_woken or not self._ended:
                return
            self._is_loop_woken = True
        assert self._loop is not None
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            self._is_loop_woken = False
            ended, self._ended = self._ended, []
        for future, result, error in ended:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
