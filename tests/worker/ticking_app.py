"""The app that the worker processes of these tests serve: schedules that tick every second, and write down each run.

TICKING_APP_SCHEDULES is how many there are, TICKING_APP_SKEW by how many seconds this process's clock is wrong.
"""

from __future__ import annotations

import os
import time

SKEW = float(os.environ.get("TICKING_APP_SKEW", "0"))
if SKEW:
    # All that Python tells of the time of day; nothing of what is told of how much time has passed.
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + SKEW
    time.time_ns = lambda: _time_ns() + int(SKEW * 1e9)

import qbull  # noqa: E402

app = qbull.App(os.environ.get("TICKING_APP_URL") or "redis://127.0.0.1:1/0", prefix="test")
bells = app.queue(
    "bells",
    partitions=int(os.environ.get("TICKING_APP_PARTITIONS", "4")),
    keep=qbull.Keep(completed=100_000),
    retry=qbull.Retry(attempts=3, backoff="fixed", delay=0.1),
)


@bells.task
async def ring(bell: int) -> None:
    job = qbull.current_job()
    assert job.planned_at is not None
    line = f"{bell} {int(job.planned_at.timestamp())} {job.id} {os.getpid()}\n"
    fd = os.open(os.environ["TICKING_APP_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


for number in range(int(os.environ.get("TICKING_APP_SCHEDULES", "10"))):
    if number % 2:
        bells.cron(every=1, name=f"bell-{number}", args={"bell": number}, catch_up="all")(ring)
    else:
        bells.cron("* * * * * *", name=f"bell-{number}", args={"bell": number}, catch_up="all")(ring)
