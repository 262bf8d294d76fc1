"""DBOS on PostgreSQL: workflows and steps are coroutines; a step is committed before the next line runs."""

from __future__ import annotations

import asyncio
import os
import sys

from callers import steps_a_second

sys.path.pop(0)  # this directory: our name is the library's

from dbos import DBOS

STEPS = int(sys.argv[1])

DBOS(
    config={
        "name": "bench",
        "system_database_url": os.environ["BENCH_DATABASE"],
        # One connection for each workflow that runs at once.
        "sys_db_pool_size": int(sys.argv[2]),
        "log_level": "ERROR",
    }
)


@DBOS.step()
async def one_step(n: int) -> int:
    return n


@DBOS.workflow()
async def has_steps() -> None:
    for n in range(STEPS):
        await one_step(n)


async def main(callers: int, seconds: float) -> float:
    DBOS.launch()
    try:
        return await steps_a_second(has_steps, STEPS, callers, seconds)
    finally:
        DBOS.destroy()


print(asyncio.run(main(int(sys.argv[2]), float(sys.argv[3]))))
