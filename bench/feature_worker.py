"""`python -m bench.feature_worker ROW`: one worker process for a row of bench/features.py.

It ends when its standard input does, so it never outlives the bench.
"""

from __future__ import annotations

import asyncio
import os
import sys

from bench.features import FEATURES
from qbull.worker.process.memory import freeze_loaded_objects


async def work(row: str) -> None:
    app, _ = FEATURES[row].declare(os.environ["BENCH_URL"], os.environ["BENCH_DATABASE"])
    loop = asyncio.get_running_loop()
    async with app, app.worker():
        freeze_loaded_objects()  # as `qbull worker` does
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
