"""What attempts leave behind goes when they end: cycles would stay until the collector looks at old objects, which is seldom."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import hiredis

import qbull
from conftest import eventually

OURS = os.path.dirname(qbull.__file__)


@contextmanager
def collected() -> Iterator[list[str]]:
    """The exceptions, the frames of ours and the buffers of connections that only the collector could remove, when the block has ended."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += [name for name in map(name_of, gc.garbage) if name is not None]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def name_of(garbage: object) -> str | None:
    if isinstance(garbage, BaseException):
        return repr(garbage)
    if isinstance(garbage, hiredis.Reader):
        return "the buffer of a connection"
    if isinstance(garbage, FrameType) and garbage.f_code.co_filename.startswith(OURS):
        return garbage.f_code.co_qualname
    return None


async def test_attempts_that_are_interrupted_leave_no_garbage(app: qbull.App) -> None:
    queue = app.queue("work", concurrency=5, retry=qbull.Retry(attempts=1))

    @queue.task
    async def hang() -> None:
        await asyncio.sleep(3600)

    async def all_run() -> bool:
        return (await queue.stats()).active == 5

    async with app.worker() as worker:
        await hang.options(timeout=0.01).enqueue()  # what comes once in a worker's life has come
        await worker.drain()
        with collected() as garbage:
            await hang.options(timeout=0.01).enqueue_many([{}] * 20)
            await worker.drain()
            jobs = await hang.enqueue_many([{}] * 5)
            await eventually(all_run)
            for job in jobs:
                await job.cancel()
            await worker.drain()

    assert garbage == []


async def test_what_the_server_refuses_leaves_no_garbage(app: qbull.App) -> None:
    server = app._client().store.server
    refused = 0
    await server.call("PING")

    with collected() as garbage:
        for _ in range(20):
            try:
                await server.call("NOSUCH")
            except qbull.ServerError:
                refused += 1

    assert (refused, garbage) == (20, [])


async def test_connections_that_are_closed_leave_no_garbage(app: qbull.App) -> None:
    server = app._client().store.server
    await server.call("PING")

    with collected() as garbage:
        for _ in range(5):
            await server.close()
            await server.call("PING")

    assert garbage == []
