"""Memory and CPU of worker processes: measured with the heartbeat, shown in REST, forgotten with the worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conftest import eventually
from qbull.store.read.usage import worker_usage
from qbull.store.store import Store
from qbull.store.verbs.workers import ProcessUsage
from qbull.worker.process.usage import MIN_MEASURED_SECONDS, UsageMeter

MEGABYTE = 1_000_000
BUSY = """
import subprocess, sys
kept = bytearray(b"x") * 50_000_000
if len(sys.argv) > 1:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print("ready", flush=True)
while True: pass
"""
LARGE_CHILD = 'kept = bytearray(b"x") * 80_000_000\nimport time\ntime.sleep(600)'

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="other processes are measured on Linux only")


@contextmanager
def _program(*arguments: str) -> Iterator[int]:
    command = [sys.executable, "-c", BUSY, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, 9)


async def _measured_twice(meter: UsageMeter) -> ProcessUsage:
    """After a time in which CPU can be told."""
    first = meter.measure()["w"]
    assert first.cpu_percent is None
    until = time.monotonic() + MIN_MEASURED_SECONDS

    async def second() -> ProcessUsage | None:
        return meter.measure()["w"] if time.monotonic() > until else None

    found = await eventually(second)
    assert isinstance(found, ProcessUsage)
    return found


@linux_only
async def test_a_busy_process_shows_its_memory_and_cpu() -> None:
    with _program() as pid:
        usage = await _measured_twice(UsageMeter(lambda: {"w": pid}))

    assert 50 * MEGABYTE < usage.memory_bytes < 120 * MEGABYTE
    assert usage.cpu_percent is not None
    assert 1 < usage.cpu_percent < 110


@linux_only
async def test_child_processes_count_as_their_worker() -> None:
    with _program(LARGE_CHILD) as pid:
        meter = UsageMeter(lambda: {"w": pid})

        async def has_both() -> bool:
            return meter.measure()["w"].memory_bytes > 130 * MEGABYTE

        await eventually(has_both)


async def test_a_process_that_is_gone_is_left_out() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass

    assert UsageMeter(lambda: {"w": ended.pid}).measure() == {}


async def test_usage_comes_with_a_heartbeat_and_goes_with_the_worker(store: Store) -> None:
    used = ProcessUsage(5 * MEGABYTE, 12.5)

    await store.heartbeat(30, ["one", "two"], {"one": used})
    assert await worker_usage(store, ["one", "two"]) == {"one": used}
    # A heartbeat without a measurement keeps the last one.
    await store.heartbeat(30, ["one", "two"])
    assert await worker_usage(store, ["one"]) == {"one": used}
    await store.forget_worker("one", certain=True)

    assert await worker_usage(store, ["one", "two"]) == {}
    assert await worker_usage(store, []) == {}
