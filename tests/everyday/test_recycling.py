"""`--max-jobs-per-process` and `--max-memory-per-process` replace processes between jobs, without losing or repeating one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import everyday_app
import pytest
from program import WorkerProgram, has_lines, lines

from conftest import eventually


@pytest.mark.timeout(180)
async def test_a_process_is_replaced_after_so_many_jobs(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log, ("--max-jobs-per-process", "20")) as program:
        long = await everyday_app.plain.enqueue(key="long", number=0, seconds=5)
        await eventually(lambda: has_lines(log, 1, "start", "long"))
        number = 0
        while len({line.pid for line in lines(log, "start", "quick")}) < 3:
            await (await everyday_app.quick.enqueue(number=number)).result(timeout=60)
            number += 1
        await long.result(timeout=60)

    assert set(Counter(line.number for line in lines(log, "start", "quick")).values()) == {1}
    assert {line.attempt for line in lines(log)} == {1}
    first = lines(log, "start", "long")[0].pid
    assert [line.pid for line in lines(log, key="long")] == [first, first], "it ended where it had started"
    jobs = Counter(line.pid for line in lines(log, "start"))
    assert jobs[first] >= 20
    assert (await everyday_app.free.stats()).failed == 0
    assert "crashed" not in program.text() and "reclaimed" not in program.text()


@pytest.mark.timeout(180)
async def test_a_process_that_has_grown_is_replaced(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log, ("--max-memory-per-process", "500MB")) as program:
        [first] = program.children()
        await (await everyday_app.quick.enqueue(number=0)).result(timeout=60)
        await (await everyday_app.grow.enqueue(number=0, megabytes=600)).result(timeout=60)
        await eventually(lambda: is_replaced(program, first), within=60)
        await (await everyday_app.quick.enqueue(number=1)).result(timeout=60)

    before, after = lines(log, "start", "quick")
    assert before.pid == first != after.pid
    assert "MB of memory" in program.text()


async def is_replaced(program: WorkerProgram, pid: int) -> bool:
    children = program.children()
    return bool(children) and pid not in children
