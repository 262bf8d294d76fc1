"""The thread pool: a function that blocks holds up no other, and each result reaches its caller."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from qbull.worker.thread_pool import ThreadPool

SIZE = 3


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Functions block on it; at the end of the test all of them return."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_function_that_blocks_holds_up_no_other(gate: threading.Event) -> None:
    pool = ThreadPool(SIZE, "pool")
    blocked = [pool.run(gate.wait) for _ in range(SIZE - 1)]

    assert await asyncio.gather(*(pool.run(lambda n=n: n) for n in range(100))) == list(range(100))
    assert not any(future.done() for future in blocked)
    gate.set()
    assert await asyncio.gather(*blocked) == [True] * (SIZE - 1)
    pool.close()


async def test_a_result_does_not_wait_for_the_next_function_of_its_thread(gate: threading.Event) -> None:
    pool = ThreadPool(1, "pool")
    quick, slow = pool.run(lambda: "quick"), pool.run(gate.wait)

    assert await quick == "quick"
    assert not slow.done()
    gate.set()
    assert await slow
    pool.close()


async def test_no_more_functions_run_at_a_time_than_there_are_threads() -> None:
    pool = ThreadPool(SIZE, "pool")
    lock, running, most = threading.Lock(), 0, 0

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1

    await asyncio.gather(*(pool.run(count) for _ in range(60)))
    assert most == SIZE
    pool.close()


async def test_an_error_is_raised_where_the_function_was_called() -> None:
    pool = ThreadPool(SIZE, "pool")

    def fail() -> None:
        raise ValueError("seven")

    with pytest.raises(ValueError, match="seven"):
        await pool.run(fail)
    pool.close()


async def test_an_error_that_no_future_can_carry_is_wrapped() -> None:
    pool = ThreadPool(SIZE, "pool")

    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run(lambda: next(iter([])))
    pool.close()


async def test_calls_that_wait_move_to_the_new_pool(gate: threading.Event) -> None:
    old = ThreadPool(SIZE, "old")
    blocked = [old.run(gate.wait) for _ in range(SIZE)]
    waiting = [old.run(threading.current_thread) for _ in range(10)]

    new = old.replace(SIZE, "new")

    assert {thread.name.split("_")[0] for thread in await asyncio.gather(*waiting)} == {"new"}
    gate.set()
    assert await asyncio.gather(*blocked) == [True] * SIZE
    new.close()


async def test_closing_cancels_what_has_not_started(gate: threading.Event) -> None:
    pool = ThreadPool(1, "pool")
    running, waiting = pool.run(gate.wait), pool.run(gate.wait)
    pool.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await running


async def test_many_callers_each_get_their_own_result() -> None:
    pool = ThreadPool(8, "pool")

    def work(n: int) -> int:
        if n % 97 == 0:
            time.sleep(0.0005)
        return n

    async def caller(start: int) -> None:
        for n in range(start, start + 200):
            assert await pool.run(lambda n=n: work(n)) == n

    await asyncio.gather(*(caller(start) for start in range(0, 10_000, 200)))
    pool.close()


async def test_a_cancelled_caller_leaves_the_others_alone(gate: threading.Event) -> None:
    pool = ThreadPool(1, "pool")
    cancelled, other = pool.run(gate.wait), pool.run(lambda: 7)
    cancelled.cancel()
    gate.set()

    assert await other == 7
    pool.close()
