"""Metrics: what Prometheus scrapes. Read from the server when somebody asks, at most once a second.

Labels are names of queues and tasks, which come from code and are as many as that; nothing that a job says becomes one. How long jobs
waited and ran is what the workers have counted and written down, all of them together.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response

import qbull
from qbull.api.context import Site
from qbull.api.endpoint import Call, Endpoint, Nothing
from qbull.core import histograms
from qbull.core.histograms import Histogram
from qbull.core.layout import Layout
from qbull.errors import ServerError
from qbull.observe.exposition import CONTENT_TYPE, Metric, Samples
from qbull.queue import Queue
from qbull.store.read import histograms as written
from qbull.store.read.inspect import Counts, server_time
from qbull.store.verbs.tick import first_due
from qbull.store.verbs.workers import Member

WITHIN = 10.0
"""Seconds for the server to answer."""
MOST_TASKS = 200
"""Tasks of a queue that have a label of their own; the others are counted together."""
OTHERS = "(others)"

UP = Metric("qbull_up", "gauge", "Whether the server of the jobs could be asked.")
BUILD = Metric("qbull_build_info", "gauge", "The version of qbull that serves this.", ("version",))
JOBS = Metric(
    "qbull_queue_jobs", "gauge", "Jobs by state, finished ones as far as they are kept.", ("queue", "state")
)
OLDEST = Metric(
    "qbull_queue_oldest_waiting_seconds",
    "gauge",
    "How long the oldest waiting job could have run.",
    ("queue",),
)
IN_LANES = Metric(
    "qbull_queue_jobs_behind_others", "gauge", "Waiting jobs behind others of their key.", ("queue",)
)
PAUSED = Metric("qbull_queue_paused", "gauge", "1 while the queue is paused.", ("queue",))
PARTITIONS = Metric("qbull_queue_partitions", "gauge", "Partitions of the queue.", ("queue",))
OWNED = Metric("qbull_queue_partitions_owned", "gauge", "Partitions that a live worker reads.", ("queue",))
WORKERS = Metric("qbull_queue_workers", "gauge", "Live worker processes that serve the queue.", ("queue",))
SLOTS = Metric(
    "qbull_queue_slots",
    "gauge",
    "Jobs of the queue that can run at a time, over all its workers.",
    ("queue",),
)
PROCESSES = Metric("qbull_workers", "gauge", "Live worker processes.")
LAG = Metric(
    "qbull_schedule_lag_seconds", "gauge", "How late the latest schedule of the queue is.", ("queue",)
)
TOTALS = {
    word: Metric(f"qbull_jobs_{word}_total", "counter", f"Jobs that {meaning}.", ("queue",))
    for word, meaning in (
        ("enqueued", "were enqueued"),
        ("completed", "have completed"),
        ("failed", "failed for good"),
        ("retried", "failed and were put off for another attempt"),
        ("cancelled", "were cancelled"),
        ("redriven", "were sent round again by somebody"),
        ("removed", "were removed by somebody"),
    )
}
STARTED = Metric("qbull_jobs_started_total", "counter", "Runs of jobs that workers have begun.", ("queue",))
DURATION = Metric("qbull_job_duration_seconds", "histogram", "How long jobs ran.", ("queue", "task"))
WAIT = Metric(
    "qbull_job_wait_seconds", "histogram", "How long jobs could have run before they did.", ("queue",)
)
ERRORS = Metric(
    "qbull_script_errors_total", "counter", "Scripts that workers had refused by the server.", ("queue",)
)
REQUESTS = Metric(
    "qbull_api_requests_total", "counter", "Requests that this process has answered.", ("endpoint", "status")
)
LISTENERS = Metric("qbull_api_listeners", "gauge", "Streams of events that are open in this process.")

METRICS = [
    UP, BUILD, JOBS, OLDEST, IN_LANES, PAUSED, PARTITIONS, OWNED, WORKERS, SLOTS, PROCESSES, LAG, *TOTALS.values(), STARTED, DURATION, WAIT,
    ERRORS, REQUESTS, LISTENERS,
]  # fmt: skip


async def metrics(call: Call[Nothing, Nothing]) -> Response:
    text = await call.site.metrics.get()
    return Response(text, headers={"content-type": CONTENT_TYPE})


async def collect(site: Site) -> str:
    """Everything that can be said now. Where the server is away, that."""
    samples = Samples()
    samples.add(BUILD, 1, qbull.__version__)
    samples.add(LISTENERS, site.live.listeners)
    for (endpoint, status), count in sorted(site.answered.items()):
        samples.add(REQUESTS, count, endpoint, str(status))
    try:
        async with asyncio.timeout(WITHIN):
            await _collect(site, samples)
    except (ServerError, TimeoutError):
        samples = Samples()  # half of it would look like all of it
        samples.add(BUILD, 1, qbull.__version__)
        samples.add(UP, 0)
        return samples.text()
    samples.add(UP, 1)
    return samples.text()


async def _collect(site: Site, samples: Samples) -> None:
    store = site.store
    members = await store.workers()
    samples.add(PROCESSES, len(members))
    now = await server_time(store.server)
    for queue in await site.queues():
        counts = await queue.stats()
        layout = await site.app.client().layout(queue.settings)
        _of_counts(samples, queue.name, counts, now)
        _of_workers(samples, queue.name, members, layout)
        _of_figures(samples, queue.name, await written.read(store, queue.name))
        samples.add(LAG, await _lag(site, queue, now * 1000), queue.name)


def _of_counts(samples: Samples, queue: str, counts: Counts, now: float) -> None:
    for state in ("waiting", "active", "delayed", "completed", "failed", "cancelled"):
        samples.add(JOBS, getattr(counts, state), queue, state)
    oldest = 0.0 if counts.oldest_waiting_ms is None else max(now - counts.oldest_waiting_ms / 1000, 0.0)
    samples.add(OLDEST, round(oldest, 3), queue)
    samples.add(IN_LANES, counts.in_lanes, queue)
    samples.add(PAUSED, counts.paused, queue)
    for word, metric in TOTALS.items():
        samples.add(metric, counts.totals.get(word, 0), queue)


def _of_workers(samples: Samples, queue: str, members: dict[str, Member], layout: Layout) -> None:
    serving = [member.queues[queue] for member in members.values() if queue in member.queues]
    read = {number for one in serving for number in one.partitions}
    there = {number for generation in layout.busy for number in generation.numbers}
    samples.add(PARTITIONS, len(there), queue)
    samples.add(OWNED, len(there & read), queue)
    samples.add(WORKERS, len(serving), queue)
    samples.add(SLOTS, sum(one.concurrency for one in serving), queue)


def _of_figures(samples: Samples, queue: str, named: dict[str, int]) -> None:
    durations, waits = histograms.read(named)
    samples.add(STARTED, named.get(histograms.STARTED, 0), queue)
    for task, histogram in bounded(durations).items():
        samples.add_histogram(DURATION, histogram, queue, task)
    samples.add_histogram(WAIT, waits, queue)
    samples.add(ERRORS, named.get(histograms.ERRORS, 0), queue)


def bounded(durations: dict[str, Histogram]) -> dict[str, Histogram]:
    """Those of the tasks that ran most often by themselves, the others together."""
    by_count = sorted(durations, key=lambda task: -durations[task].count)
    shown = {task: durations[task] for task in sorted(by_count[:MOST_TASKS])}
    if len(by_count) > MOST_TASKS:
        shown[OTHERS] = Histogram.together(durations[task] for task in by_count[MOST_TASKS:])
    return shown


async def _lag(site: Site, queue: Queue, now_ms: float) -> float:
    """How long ago the first of its schedules was due that has not fired."""
    due = await first_due(await site.app.client().partitions(queue.settings))
    return round(max([0.0, *(now_ms - at for at in due if at is not None)]) / 1000, 3)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/metrics",
        role="viewer",
        summary="Metrics for Prometheus",
        handler=metrics,
        answer=str,
        media="text/plain",
    )
]
