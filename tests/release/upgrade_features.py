"""The features of which two releases of qbull have jobs at the same time.

`python upgrade_features.py enqueue a` enqueues them, `change b` cancels and repairs jobs of another release,
`redrive a` all that have failed, and `read b` records results and streams, as another release reads them.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import psycopg

import qbull

LOG, GATE = Path(os.environ["UPGRADE_LOG"]), Path(os.environ["UPGRADE_GATE"])
KEYS = [os.environ["UPGRADE_KEY"]]
app = qbull.App(
    os.environ["UPGRADE_URL"],
    prefix="test",
    database=os.environ["UPGRADE_DATABASE"],
    arguments=qbull.FileArguments(os.environ["UPGRADE_ARGUMENTS"], over=10_000),
    middleware=[qbull.Compressed(over=1_000), qbull.Encrypted(KEYS), qbull.Signed(KEYS)],
)
mixed = app.queue("mixed", concurrency=40, retry=qbull.Retry(delays=(0.2, 0.2)))
single = app.queue("single", max_active=1)
rated = app.queue("rated", rate=qbull.Rate(4, per=1))
one_at_a_time = qbull.Limit("one", concurrency=1)
left = app.queue("left", limit=one_at_a_time)
right = app.queue("right", limit=one_at_a_time)
chunked = app.queue("chunked", concurrency=10)


def record(*words: object) -> None:
    with LOG.open("a") as log:
        log.write(" ".join(map(str, words)) + "\n")


async def wait_for_gate() -> None:
    while not GATE.exists():
        await asyncio.sleep(0.02)


def block_until_gate() -> None:
    while not GATE.exists():
        time.sleep(0.02)


@mixed.task
def in_thread(number: int) -> int:
    block_until_gate()
    record("thread", number)
    return number


@mixed.task(cpu=True)
def in_process(number: int) -> int:
    block_until_gate()
    record("process", number)
    return number


@mixed.task
async def large(text: str, number: int) -> int:
    await wait_for_gate()
    record("large", number, len(text))
    return len(text)


@mixed.task
async def secret(text: str) -> str:
    await wait_for_gate()
    record("secret", text)
    return text.upper()


@mixed.task
async def speak(words: list[str]) -> int:
    """Emits the first word while the gate is closed, on each worker that has the job, then all words."""
    job = qbull.current_job()
    await job.emit(words[0])
    await wait_for_gate()
    for word in words:
        await job.emit(word)
    return len(words)


@mixed.task
async def endless() -> None:
    record("endless")
    await asyncio.Event().wait()


@mixed.task(retry=qbull.Retry(attempts=1))
async def repaired(number: int, *, works: bool = False) -> int:
    if not works:
        raise qbull.Fail("not repaired")
    record("repaired", number)
    return number


@mixed.task(unique=qbull.Unique(window=600, by=("user",)))
async def notify(user: str, reason: str) -> None:
    record("notify", user, reason)


@mixed.task(labels={"kind": "special"})
async def special(number: int) -> None:
    record("special", number)


@mixed.task
async def part(number: int) -> int:
    await wait_for_gate()
    return number


@mixed.task
async def total(name: str) -> int:
    numbers = qbull.current_job().results
    record("total", name, sum(numbers))
    return sum(numbers)


@mixed.task
async def shipped(name: str) -> None:
    record("shipped", name)


@single.task
async def first_of_all(name: str) -> None:
    record("first", name)
    await wait_for_gate()


@single.task
async def urgent(priority: int) -> None:
    record("urgent", priority)


@rated.task
async def start(number: int) -> None:
    record("start", number, time.monotonic())


async def use_shared(name: str) -> None:
    started = time.monotonic()
    await asyncio.sleep(0.01)
    record("shared", name, started, time.monotonic())


@left.task(name="use")
async def use_left(name: str) -> None:
    await use_shared(name)


@right.task(name="use")
async def use_right(name: str) -> None:
    await use_shared(name)


@chunked.task(chunk=5, wait=0.5)
async def store(numbers: list[int]) -> list[int]:
    await wait_for_gate()
    record("chunk", *numbers)
    return [10 * number for number in numbers]


async def enqueue_everything(who: str) -> None:
    record("from", qbull.__file__)
    await first_of_all.options(id=f"first-{who}", priority=1).enqueue(who)
    for number in range(3):
        for task in (in_thread, in_process):
            await task.options(id=f"{task.name}-{who}-{number}").enqueue(number)
        await large.options(id=f"large-{who}-{number}").enqueue("x" * 50_000, number)
        await repaired.options(id=f"repaired-{who}-{number}").enqueue(number)
        await special.enqueue(number)
        await use_left.enqueue(f"{who}{number}")
        await use_right.enqueue(f"{who}{number}")
    await secret.options(id=f"secret-{who}").enqueue(f"{who}-known")
    await speak.options(id=f"speak-{who}").enqueue(["one", "two", "three"])
    await endless.options(id=f"endless-{who}").enqueue()
    for number in range(10):
        await store.options(id=f"store-{who}-{number}").enqueue(number)
        await start.enqueue(number)
        await urgent.options(priority=10 - number % 9).enqueue(10 - number % 9)
    await urgent.options(id=f"expired-{who}", expires=1).enqueue(0)
    await notify.enqueue("ann", f"{who}1")
    await notify.enqueue("ann", f"{who}2")
    await qbull.group(part.step(1), part.step(2), part.step(3), then=total.step(who)).enqueue()
    async with await psycopg.AsyncConnection.connect(os.environ["UPGRADE_DATABASE"]) as connection:
        await shipped.options(transaction=connection).enqueue(who)


async def change(other: str) -> None:
    """Cancel what another release has started, and repair one job that has failed there."""
    record("cancel", await mixed.job(f"endless-{other}").cancel())
    await mixed.job(f"repaired-{other}-0").retry({"number": 0, "works": True})


async def redrive(who: str) -> None:
    """Repair all other failed jobs, of both releases."""
    record("redriven", who, await mixed.redrive(task="repaired", patch={"works": True}))


async def read(who: str) -> None:
    record("read", "secret", await mixed.job(f"secret-{who}").result(timeout=10))
    record("read", "large", await mixed.job(f"large-{who}-0").result(timeout=10))
    record("read", "process", await mixed.job(f"in_process-{who}-2").result(timeout=10))
    record("read", "chunk", await chunked.job(f"store-{who}-7").result(timeout=10))
    record("read", "stream", *[word async for word in mixed.job(f"speak-{who}").stream(type=str)])
    record("read", "expired", await single.job(f"expired-{who}").state())
    record("read", "endless", await mixed.job(f"endless-{who}").state())


async def carry_out(command: str, who: str) -> None:
    commands = {"enqueue": enqueue_everything, "change": change, "redrive": redrive, "read": read}
    await commands[command](who)
    await app.close()


def main(command: str, who: str) -> None:
    asyncio.run(carry_out(command, who))
