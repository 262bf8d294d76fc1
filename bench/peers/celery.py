"""Celery: one by one, which is all that it has; a pool of two processes, or of eight threads."""

from __future__ import annotations

import os
import sys
import time
from urllib.parse import urlsplit

sys.path.pop(0)  # this directory: our name is the library's

from celery import Celery

TEXT = "x" * 72
parts = urlsplit(os.environ["BENCH_URL"])
app = Celery("bench", broker=f"redis+socket://:{parts.password}@{parts.path}")
app.conf.task_ignore_result = True


@app.task(name="noop")
def noop(n: int, key: str, text: str) -> None:
    pass


def enqueue(jobs: int) -> float:
    began = time.perf_counter()
    for n in range(jobs):
        noop.delay(n, "k0", TEXT)
    return jobs / (time.perf_counter() - began)


if sys.argv[1] == "enqueue":
    print(enqueue(int(sys.argv[2])))
else:
    pool = os.environ["BENCH_MODE"]
    concurrency = {"prefork": 2, "threads": 8}[pool]
    app.worker_main(["worker", "--pool", pool, "--concurrency", str(concurrency), "--loglevel", "ERROR"])
