"""Dramatiq: one by one, which is all that its Redis broker has; one worker with eight threads, its default."""

from __future__ import annotations

import os
import sys
import threading
import time

sys.path.pop(0)  # this directory: our name is the library's

import dramatiq
from dramatiq.brokers.redis import RedisBroker

TEXT = "x" * 72
broker = RedisBroker(url=os.environ["BENCH_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(n: int, key: str, text: str) -> None:
    pass


def enqueue(jobs: int) -> float:
    began = time.perf_counter()
    for n in range(jobs):
        noop.send(n, "k0", TEXT)
    return jobs / (time.perf_counter() - began)


if sys.argv[1] == "enqueue":
    print(enqueue(int(sys.argv[2])))
else:
    dramatiq.Worker(broker, worker_threads=8).start()
    threading.Event().wait()
