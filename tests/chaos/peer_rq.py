"""RQ under the same load: what its workers run, and what its producer does. Runs in an environment of its own, without qbull.

peer_rq.py work | peer_rq.py send NUMBER OF SEED
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from history import ACK, BEGUN, DONE, HEAD, RUN, Book
from job_plan import KeyChoice
from redis import Redis
from redis.exceptions import RedisError
from rq import Queue, Worker

HERE = Path(os.environ["CHAOS_DIRECTORY"])
BATCH = 50
BEHIND = 500
connection = Redis.from_url(os.environ["CHAOS_URL"])
queue = Queue(connection=connection)
book = Book(HERE / f"{os.getpid()}-{time.monotonic_ns()}.runs")
"""Of the worker: the process that it forks for each job writes into the same file."""


def step(key: int, number: int) -> None:
    book.write(RUN.pack(BEGUN, 1, 0, key, number, time.monotonic_ns()))
    book.write(RUN.pack(DONE, 1, 0, key, number, time.monotonic_ns()))


def send(name: int, of: int, seed: int) -> None:
    """Until it is ended. A batch is a transaction of the library's own; an answer that is lost ends it."""
    choice, sent, acks = (
        KeyChoice(name, of, seed, keys=100),
        Book(HERE / f"{name}.sent"),
        Book(HERE / f"{name}.acks"),
    )
    following: Counter[int] = Counter()
    for number in range(1_000_000):
        while len(queue) > BEHIND:
            time.sleep(0.05)
        keys = array("I", choice.keys(BATCH))
        began = time.monotonic_ns()
        sent.write(HEAD.pack(number, len(keys), 0, began) + keys.tobytes())
        jobs = []
        for key in keys:
            jobs.append(Queue.prepare_data("peer_rq.step", (key, following[key]), result_ttl=0))
            following[key] += 1
        try:
            queue.enqueue_many(jobs)
        except RedisError:
            return
        acks.write(ACK.pack(number, 1, began, time.monotonic_ns()))


if __name__ == "__main__":
    if sys.argv[1] == "work":
        import peer_rq  # so that jobs and worker share one book

        peer_rq.book.write(b"")
        Worker([queue], connection=connection).work(logging_level="ERROR")
    else:
        send(*map(int, sys.argv[2:5]))
