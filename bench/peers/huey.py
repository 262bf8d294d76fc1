"""huey: one by one; its consumer with eight threads and a blocking read."""

from __future__ import annotations

import os
import sys
import time

sys.path.pop(0)  # this directory: our name is the library's

from huey import RedisHuey

TEXT = "x" * 72
huey = RedisHuey("bench", url=os.environ["BENCH_URL"], results=False)


@huey.task()
def noop(n: int, key: str, text: str) -> None:
    pass


def enqueue(jobs: int) -> float:
    began = time.perf_counter()
    for n in range(jobs):
        noop(n, "k0", TEXT)
    return jobs / (time.perf_counter() - began)


if sys.argv[1] == "enqueue":
    print(enqueue(int(sys.argv[2])))
else:
    huey.create_consumer(workers=8, periodic=False).run()
