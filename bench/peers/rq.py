"""RQ: enqueue_many, 1,000 at a time; its standard worker, which forks for each job."""

from __future__ import annotations

import os
import sys
import time

sys.path.pop(0)  # this directory: our name is the library's

from redis import Redis
from rq import Queue, Worker

TEXT = "x" * 72
connection = Redis.from_url(os.environ["BENCH_URL"])
queue = Queue(connection=connection)


def enqueue(jobs: int) -> float:
    began = time.perf_counter()
    for start in range(0, jobs, 1000):
        queue.enqueue_many(
            [Queue.prepare_data("builtins.len", (TEXT,)) for _ in range(start, min(start + 1000, jobs))]
        )
    return jobs / (time.perf_counter() - began)


if sys.argv[1] == "enqueue":
    print(enqueue(int(sys.argv[2])))
else:
    Worker([queue], connection=connection).work(logging_level="ERROR")
