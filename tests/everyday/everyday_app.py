"""The app that worker processes serve in the tests of ordinary days. Each task writes a line when it starts and when it ends."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

import qbull

app = qbull.App(os.environ.get("EVERYDAY_URL") or "redis://127.0.0.1:1/0", prefix="test")
work = app.queue(
    "work",
    order="key",
    concurrency=int(os.environ.get("EVERYDAY_CONCURRENCY", "10")),
    min_idle=float(os.environ.get("EVERYDAY_MIN_IDLE") or 0) or None,
)
free = app.queue(
    "free",
    concurrency=int(os.environ.get("EVERYDAY_CONCURRENCY", "10")),
    max_crashes=int(os.environ.get("EVERYDAY_MAX_CRASHES", "3")),
)

_grown: list[bytes] = []


def record(word: str, key: str, number: int) -> None:
    """Write what happened as one line."""
    line = f"{word} {key} {number} {qbull.current_job().attempt} {os.getpid()} {time.time()}\n"
    fd = os.open(os.environ["EVERYDAY_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


def overlaps(key: str) -> bool:
    """Is a process alive that has started a job of this key and not ended it?"""
    open_runs: dict[str, int] = {}
    with open(os.environ["EVERYDAY_LOG"]) as log:
        for word, of, number, _, pid, _ in (line.split(" ") for line in log):
            if of == key and word == "start":
                open_runs[f"{number} {pid}"] = int(pid)
            elif of == key:
                open_runs.pop(f"{number} {pid}", None)
    return any(pid != os.getpid() and is_alive(pid) for pid in open_runs.values())


def is_alive(pid: int) -> bool:
    """A zombie runs nothing any more."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def take_time(key: str, number: int, seconds: float) -> None:
    """The first run of a job takes its time, a second one none."""
    with open(os.environ["EVERYDAY_LOG"]) as log:
        starts = sum(line.startswith(f"start {key} {number} ") for line in log)
    time.sleep(seconds if starts < 2 else 0)


@work.task(key="{key}")
def plain(key: str, number: int, seconds: float = 0.0) -> None:
    """A plain function, which no worker can interrupt. Only its first run takes long."""
    record("start", key, number)
    if overlaps(key):
        record("overlap", key, number)
    take_time(key, number, seconds)
    record("end", key, number)


@work.task(key="{key}", cpu=True)
def heavy(key: str, number: int, seconds: float = 0.0) -> None:
    """A function in a process of its own."""
    record("start", key, number)
    if overlaps(key):
        record("overlap", key, number)
    take_time(key, number, seconds)
    record("end", key, number)


@free.task(timeout=1, retry=qbull.Retry(attempts=1))
def hang(number: int) -> None:
    """A plain function that does not return."""
    record("start", "hang", number)
    time.sleep(3600)


@work.task(key="{key}", timeout=1, retry=qbull.Retry(attempts=2, delay=0))
def hang_once(key: str, number: int, seconds: float = 3600.0) -> None:
    """A plain function that does not return in time when it runs first."""
    record("start", key, number)
    if overlaps(key):
        record("overlap", key, number)
    if qbull.current_job().attempt == 1:
        time.sleep(seconds)
    record("end", key, number)


@free.task
def grow(number: int, megabytes: int) -> None:
    """Takes memory and never returns it."""
    record("start", "grow", number)
    _grown.append(b"x" * (megabytes << 20))


@free.task
def quick(number: int) -> None:
    record("start", "quick", number)


@free.task
def leave(number: int, code: int = 3) -> None:
    """Ends the whole process."""
    record("start", "leave", number)
    os._exit(code)


def wait_for_gate() -> None:
    """Wait until the test creates the file."""
    while not os.path.exists(os.environ["EVERYDAY_GATE"]):
        time.sleep(0.02)


@work.task(key="{key}")
async def gated(key: str, number: int) -> None:
    """A coroutine that ends when the test tells it to."""
    record("start", key, number)
    while not os.path.exists(os.environ["EVERYDAY_GATE"]):
        await asyncio.sleep(0.02)
    record("end", key, number)


@work.task(key="{key}")
def gated_plain(key: str, number: int) -> None:
    record("start", key, number)
    wait_for_gate()
    record("end", key, number)


@work.task(key="{key}", cpu=True)
def gated_cpu(key: str, number: int) -> None:
    record("start", key, number)
    wait_for_gate()
    record("end", key, number)


spread = app.queue("spread", partitions=8, concurrency=int(os.environ.get("EVERYDAY_CONCURRENCY", "10")))


@spread.task
async def block_loop(number: int) -> None:
    """Blocks the event loop until the test releases it."""
    record("start", "block", number)
    wait_for_gate()
    record("end", "block", number)


@spread.task
async def hold_gil(number: int, seconds: int) -> None:
    """Blocks the event loop in C code, which lets no thread of the process run."""
    record("start", "gil", number)
    ctypes.PyDLL(None).sleep(seconds)


@spread.task
async def spread_quick(number: int) -> None:
    record("start", "quick", number)


@free.task(cpu=True, retry=qbull.Retry(attempts=1))
def raise_in_process(text: str) -> None:
    """Escapes in the text become characters here: no argument could carry a lone surrogate."""
    odd = text.encode().decode("unicode_escape")
    raise ValueError(f"{odd} of process {os.getpid()}")


@free.task(cpu=True)
def process_of() -> int:
    return os.getpid()


@free.task(cpu=True)
def fail_in_process() -> None:
    raise qbull.Fail("no such customer")


@work.task(key="{key}")
def fragile(key: str, number: int) -> None:
    """Ends the whole process the first time, if its number is odd."""
    record("start", key, number)
    if overlaps(key):
        record("overlap", key, number)
    with open(os.environ["EVERYDAY_LOG"]) as log:
        starts = sum(line.startswith(f"start {key} {number} ") for line in log)
    if number % 2 and starts < 2:
        os._exit(3)
    record("end", key, number)
