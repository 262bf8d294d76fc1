"""A worker reads and writes the worker registry once for all of its queues."""

from __future__ import annotations

import asyncio

import pytest

from qbull.worker.shared_call import SharedCall


class Server:
    """Answers with the number of the call, as soon as it may."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_answer = asyncio.Event()

    async def call(self) -> int:
        self.calls += 1
        number = self.calls
        await asyncio.sleep(0)
        await self.may_answer.wait()
        return number


async def test_callers_that_come_together_share_the_call_after_the_first() -> None:
    server = Server()
    server.may_answer.set()
    read = SharedCall(server.call)
    assert await asyncio.gather(*(read() for _ in range(20))) == [1] + [2] * 19


async def test_a_caller_that_comes_during_a_call_gets_the_answer_of_the_next_one() -> None:
    server = Server()
    read = SharedCall(server.call)
    first = asyncio.create_task(read())
    while not server.calls:
        await asyncio.sleep(0)
    later = [asyncio.create_task(read()) for _ in range(3)]
    await asyncio.sleep(0)
    assert server.calls == 1, "one call at a time"
    server.may_answer.set()
    assert await first == 1
    assert await asyncio.gather(*later) == [2, 2, 2]


async def test_a_cancelled_caller_takes_the_answer_from_nobody() -> None:
    server = Server()
    read = SharedCall(server.call)
    first, leaving, staying = (asyncio.create_task(read()) for _ in range(3))
    while not server.calls:
        await asyncio.sleep(0)
    leaving.cancel()
    server.may_answer.set()
    assert await first == 1
    assert await staying == 2
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_program_that_cancels_all_tasks_can_still_call() -> None:
    """It stops its worker after that, which registers once more."""
    server, before = Server(), asyncio.all_tasks()
    read = SharedCall(server.call)
    callers = [asyncio.create_task(read()) for _ in range(2)]
    while not server.calls:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.wait(callers)

    server.may_answer.set()
    assert await asyncio.wait_for(read(), 20) == 2


async def test_all_callers_get_the_error_of_their_call_and_the_next_call_is_made() -> None:
    answers = iter([None, ConnectionError("away"), None])

    async def call() -> str:
        error = next(answers)
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return "here"

    read = SharedCall(call)
    found = await asyncio.gather(read(), read(), read(), return_exceptions=True)
    assert [str(each) for each in found] == ["here", "away", "away"]
    assert await read() == "here"
