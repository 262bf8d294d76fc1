"""Start reports: tell PostgreSQL which jobs have started, if they run for more than a moment.

For queues whose jobs are tracked in PostgreSQL. A job that ends between two looks is not reported: its end
says it all, so short jobs cost nothing. One call for all jobs of a partition.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from qbull.core.record import REPORT_ALL_FLAG, StartReport, encode_start_report
from qbull.worker.attempt import AttemptRunner
from qbull.worker.current import RunningJob, entry_ms
from qbull.worker.outage import Outage

START_REPORT_SECONDS = 0.1
"""Seconds between two looks: a job that is running at both is reported."""


class StartReporter:
    """For one queue."""

    def __init__(self, attempts: AttemptRunner, worker: str, outage: Outage) -> None:
        self._attempts = attempts
        self._worker = worker
        self._outage = outage
        self._seen: dict[int, tuple[RunningJob, float]] = {}
        self._said: dict[int, RunningJob] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(START_REPORT_SECONDS)
            await self.look()

    async def look(self) -> None:
        now = time.monotonic()
        jobs = {id(job): job for job in self._attempts.running() if job.record[2] & REPORT_ALL_FLAG}
        begun = [self._seen[name] for name in jobs if name in self._seen and name not in self._said]
        self._seen = {name: self._seen.get(name, (job, now)) for name, job in jobs.items()}
        self._said = {name: job for name, job in jobs.items() if name in self._said}
        for partition in {job.partition for job, _ in begun if job.partition is not None}:
            reports: list[bytes] = []
            for job, since in begun:
                if job.partition is partition:
                    ms = int((now - since) * 1000)
                    said = StartReport(entry_ms(job.position), ms, self._worker, job.record)
                    reports += (b"a" + job.id, encode_start_report(said))
            await self._outage.retry_until_up(partial(partition.report, reports))
        self._said |= {id(job): job for job, _ in begun}
