"""Flows over two queues, for processes that are killed: `python flow_processes.py worker`, `python flow_processes.py producer NAME`.

Each job writes a line into a log when it has had its effect; a producer prints the number of each flow that was taken.
"""

from __future__ import annotations

import asyncio
import os
import sys

import qbull

app = qbull.App(os.environ.get("FLOW_PROCESSES_URL") or "redis://127.0.0.1:1/0", prefix="test")
upper = app.queue("upper", partitions=2, concurrency=10)
lower = app.queue("lower", partitions=3, concurrency=10)
PARTS = 3
JOBS = PARTS + 2


def note(word: str, flow: str) -> None:
    fd = os.open(os.environ["FLOW_PROCESSES_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{word} {flow}\n".encode())
    os.close(fd)


@upper.task
async def first(flow: str) -> str:
    note("first", flow)
    return flow


@lower.task
async def part(flow: str, number: int) -> int:
    assert qbull.current_job().results == [flow]
    await asyncio.sleep(0.002 * number)
    note(f"part{number}", flow)
    return number


@upper.task
async def last(flow: str) -> None:
    assert qbull.current_job().results == list(range(PARTS))
    note("last", flow)


def flow_of(name: str) -> qbull.Chain[None]:
    parts = (part.step(name, number) for number in range(PARTS))
    return qbull.chain(first.step(name), qbull.group(*parts), last.step(name))


async def work() -> None:
    async with app.worker():
        await asyncio.Event().wait()


async def produce(name: str) -> None:
    number = 0
    while True:
        number += 1
        await flow_of(f"{name}-{number}").enqueue()
        os.write(1, f"{name}-{number}\n".encode())  # whole or not at all, unlike print without a buffer
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(work() if sys.argv[1] == "worker" else produce(sys.argv[2]))
