"""A module as a program that uses qbull would have it: an app, a queue and tasks at module level.

Tasks with cpu=True run in processes of their own, which import this module by its name.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import qbull

app = qbull.App()
queue = app.queue("numbers", concurrency=2, retry=qbull.Retry(attempts=1))


@dataclass
class Factors:
    of: int
    factors: tuple[int, ...]


@queue.task(cpu=True)
def emit_numbers(many: int) -> int:
    for number in range(many):
        qbull.current_job().emit_sync(number)
    return many


@queue.task(cpu=True)
def factorise(n: int) -> Factors:
    factors, rest, by = [], n, 2
    while rest > 1:
        while rest % by == 0:
            factors.append(by)
            rest //= by
        by += 1
    return Factors(n, tuple(factors))


@queue.task(cpu=True)
def process_id() -> int:
    return os.getpid()


@queue.task(cpu=True)
def refuse(n: int) -> None:
    raise ValueError(f"{n} is not a number to work with")


@queue.task(cpu=True)
def give_up() -> None:
    raise qbull.Fail("there is no such number")


@queue.task(cpu=True, timeout=0.5)
def hang() -> None:
    time.sleep(60)


@queue.task(cpu=True)
def die() -> None:
    os._exit(7)


@queue.task(cpu=True)
def leave_a_child_behind(path: str, seconds: float) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(3600)
    with open(path, "w") as file:
        file.write(str(child))
    time.sleep(seconds)
    os._exit(7)


@queue.task(cpu=True)
def leave() -> None:
    raise SystemExit(3)


@queue.task(cpu=True)
def opaque() -> object:
    return object()


@queue.task(cpu=True)
def own_attempt() -> int:
    return qbull.current_job().attempt


@queue.task(cpu=True)
def talk(lines: int) -> None:
    job = qbull.current_job()
    for n in range(lines):
        job.log_sync(f"line {n}")
        job.progress_sync(100 * (n + 1) / lines)


@queue.task(cpu=True)
def begun_at() -> float:
    return time.monotonic()
