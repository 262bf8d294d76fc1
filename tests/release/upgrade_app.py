"""The app that two releases of qbull serve at the same time. `python upgrade_app.py a` enqueues jobs of every kind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import qbull

app = qbull.App(os.environ["UPGRADE_URL"], prefix="test")
plain = app.queue("plain", concurrency=4, retry=qbull.Retry(delays=(0.2,)))
patient = app.queue("patient", concurrency=8)
ordered = app.queue("ordered", order="key", partitions=2, concurrency=8)
LOG, GATE = Path(os.environ["UPGRADE_LOG"]), Path(os.environ["UPGRADE_GATE"])


def record(line: str) -> None:
    with LOG.open("a") as log:
        log.write(f"{line}\n")


@plain.task
async def hold(number: int) -> int:
    """Runs until the gate is open, so it is active while a release is replaced."""
    while not GATE.exists():
        await asyncio.sleep(0.02)
    record(f"hold {number}")
    return number


@plain.task
async def quick(number: int) -> int:
    record(f"quick {number}")
    return number


@plain.task
async def flaky(number: int) -> int:
    if qbull.current_job().attempt == 1:
        raise ValueError("not yet")
    record(f"flaky {number}")
    return number


@plain.task(retry=qbull.Retry(attempts=1))
async def broken(number: int) -> None:
    raise qbull.Fail("never")


@plain.task(durable=True)
async def lasting(number: int) -> int:
    first = await qbull.current_job().step(double, number)
    while not GATE.exists():
        await asyncio.sleep(0.02)
    second = await qbull.current_job().step(double, first)
    record(f"lasting {number}")
    return second


async def double(number: int) -> int:
    return 2 * number


async def prepare(kind: str, number: int) -> None:
    """A step before a suspension. It must not run again after it."""
    record(f"prepare {kind} {number}")


@patient.task(durable=True)
async def remind(number: int) -> None:
    await qbull.current_job().step(prepare, "remind", number)
    await qbull.current_job().sleep(hours=24)
    record(f"remind {number}")


@patient.task(durable=True)
async def approve(number: int) -> None:
    await qbull.current_job().step(prepare, "approve", number)
    answer = await qbull.current_job().wait_for("approval", type=str)
    record(f"approve {answer}")


@patient.task
async def answer(number: int) -> int:
    while not GATE.exists():
        await asyncio.sleep(0.02)
    return number


@patient.task(durable=True)
async def ask(number: int) -> None:
    await qbull.current_job().step(prepare, "ask", number)
    record(f"ask {await qbull.current_job().call(answer.step(number))}")


@ordered.task(key="{key}")
async def step(key: str, number: int) -> None:
    await asyncio.sleep(0.01)
    record(f"step {key} {number}")


@plain.cron(every=1, name="tick")
async def tick() -> None:
    record(f"tick {qbull.__file__}")


async def enqueue_everything(who: str) -> None:
    record(f"from {qbull.__file__}")
    for number in range(3):
        await hold.enqueue(number)
        await lasting.options(id=f"lasting-{who}-{number}").enqueue(number)
        await flaky.enqueue(number)
        await broken.options(id=f"broken-{who}-{number}").enqueue(number)
        await quick.options(delay=1).enqueue(number)
    for task in (remind, approve, ask):
        await task.options(id=f"{task.name}-{who}").enqueue(1 if who == "a" else 2)
    for _ in range(3):
        await quick.options(id=f"once-{who}").enqueue(99)
    await step.enqueue_many([{"key": f"{who}{n % 4}", "number": n // 4} for n in range(80)])
    await qbull.chain(quick.step(100), quick.step(101)).enqueue()
    await app.close()


def main(who: str) -> None:
    asyncio.run(enqueue_everything(who))
