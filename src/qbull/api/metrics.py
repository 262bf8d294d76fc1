"""Metrics for Prometheus, read from the server on demand, at most once a second.

Labels are names of queues and tasks, which come from code, so their number is bounded; no job data becomes a
label. Wait and run times are histograms that all workers have recorded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from starlette.responses import Response

import qbull
from qbull.api.context import ApiContext
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.core import histograms
from qbull.core.health_problem import HealthProblem, HealthStatus, status_of, unavailable
from qbull.core.histograms import Histogram
from qbull.core.layout import Layout
from qbull.core.limit_status import LimitStatus
from qbull.errors import ServerError
from qbull.observe.exposition import METRICS_CONTENT_TYPE, Metric, MetricSamples
from qbull.queue import Queue
from qbull.store.read import histograms as written
from qbull.store.read.inspect import Counts, server_time
from qbull.store.read.limits import limit_statuses
from qbull.store.verbs.tick import first_due_ms
from qbull.store.verbs.workers import RegisteredWorker

SCRAPE_TIMEOUT_SECONDS = 10.0
"""How long a scrape waits for the server."""
MAX_TASK_LABELS = 200
"""Tasks of a queue with a label of their own; the others share one."""
OTHER_TASKS_LABEL = "(others)"

UP_METRIC = Metric("qbull_up", "gauge", "1 if the job server answers.")
BUILD_METRIC = Metric(
    "qbull_build_info", "gauge", "Version of qbull that serves these metrics.", ("version",)
)
JOBS_METRIC = Metric(
    "qbull_queue_jobs",
    "gauge",
    "Jobs by state; finished jobs as far as they are retained.",
    ("queue", "state"),
)
OLDEST_WAITING_METRIC = Metric(
    "qbull_queue_oldest_waiting_seconds",
    "gauge",
    "Age of the oldest runnable job.",
    ("queue",),
)
IN_LANES_METRIC = Metric(
    "qbull_queue_jobs_behind_others", "gauge", "Jobs that wait behind others of their key.", ("queue",)
)
PAUSED_METRIC = Metric("qbull_queue_paused", "gauge", "1 while the queue is paused.", ("queue",))
PARTITIONS_METRIC = Metric("qbull_queue_partitions", "gauge", "Partitions of the queue.", ("queue",))
OWNED_PARTITIONS_METRIC = Metric(
    "qbull_queue_partitions_owned", "gauge", "Partitions that a live worker reads.", ("queue",)
)
QUEUE_WORKERS_METRIC = Metric(
    "qbull_queue_workers", "gauge", "Live worker processes that serve the queue.", ("queue",)
)
SLOTS_METRIC = Metric(
    "qbull_queue_slots",
    "gauge",
    "Jobs of the queue that all its workers together can run concurrently.",
    ("queue",),
)
WORKER_PROCESSES_METRIC = Metric("qbull_workers", "gauge", "Live worker processes.")
SCHEDULE_LAG_METRIC = Metric(
    "qbull_schedule_lag_seconds", "gauge", "Delay of the most overdue schedule of the queue.", ("queue",)
)
TOTAL_METRICS = {
    word: Metric(f"qbull_jobs_{word}_total", "counter", f"Jobs that {meaning}.", ("queue",))
    for word, meaning in (
        ("enqueued", "were enqueued"),
        ("completed", "have completed"),
        ("failed", "failed permanently"),
        ("retried", "failed and were scheduled for another attempt"),
        ("cancelled", "were cancelled"),
        ("redriven", "were redriven manually"),
        ("removed", "were removed manually"),
    )
}
STARTED_METRIC = Metric("qbull_jobs_started_total", "counter", "Runs that workers have started.", ("queue",))
DURATION_METRIC = Metric(
    "qbull_job_duration_seconds", "histogram", "Duration of runs, in seconds.", ("queue", "task")
)
WAIT_METRIC = Metric(
    "qbull_job_wait_seconds", "histogram", "Time from runnable to start, in seconds.", ("queue",)
)
SCRIPT_ERRORS_METRIC = Metric(
    "qbull_script_errors_total", "counter", "Script calls of workers that the server refused.", ("queue",)
)
REQUESTS_METRIC = Metric(
    "qbull_api_requests_total", "counter", "Requests answered by this process.", ("endpoint", "status")
)
HEALTH_METRIC = Metric("qbull_health", "gauge", "1 for the present status of the health check.", ("status",))
PROBLEMS_METRIC = Metric(
    "qbull_problems",
    "gauge",
    "Problems that the health check reports.",
    ("kind", "severity", "queue"),
)
LIMIT_METRICS = {
    word: Metric(f"qbull_limit_{word}", "gauge", meaning, ("limit",))
    for word, meaning in (
        ("rate", "Weight that may start in a window of the shared limit."),
        ("window_seconds", "Length of the window of the shared limit."),
        ("used", "Weight that started in the last window, of jobs without a key."),
        ("concurrency", "Jobs that may run at a time under the shared limit, for each key."),
        ("running", "Jobs that run under the shared limit, over all keys."),
        ("daily", "Weight that may start in a day under the shared limit, for each key."),
        ("spent", "Weight that started today (UTC) under the shared limit, over all keys."),
    )
}
"""Values that a limit does not have are left out."""
LIMIT_WAITING_METRIC = Metric(
    "qbull_limit_waiting_jobs", "gauge", "Jobs that wait for the shared limit.", ("limit", "queue")
)
LIMIT_OLDEST_METRIC = Metric(
    "qbull_limit_oldest_waiting_seconds",
    "gauge",
    "Time that the first of these jobs has waited.",
    ("limit",),
)
LIMIT_GRANTED_METRIC = Metric(
    "qbull_limit_granted_total", "counter", "Weight that jobs were granted or used beyond that.", ("limit",)
)
LIMIT_RETURNED_METRIC = Metric(
    "qbull_limit_returned_total", "counter", "Granted weight that jobs did not use.", ("limit",)
)
LISTENERS_METRIC = Metric("qbull_api_listeners", "gauge", "Open event streams of this process.")

METRICS = [
    UP_METRIC, BUILD_METRIC, HEALTH_METRIC, PROBLEMS_METRIC, JOBS_METRIC, OLDEST_WAITING_METRIC,
    IN_LANES_METRIC, PAUSED_METRIC,
    PARTITIONS_METRIC, OWNED_PARTITIONS_METRIC, QUEUE_WORKERS_METRIC, SLOTS_METRIC, WORKER_PROCESSES_METRIC,
    SCHEDULE_LAG_METRIC, *TOTAL_METRICS.values(), STARTED_METRIC, DURATION_METRIC, WAIT_METRIC,
    SCRIPT_ERRORS_METRIC, *LIMIT_METRICS.values(), LIMIT_WAITING_METRIC, LIMIT_OLDEST_METRIC,
    LIMIT_GRANTED_METRIC, LIMIT_RETURNED_METRIC, REQUESTS_METRIC, LISTENERS_METRIC,
]  # fmt: skip


async def metrics(call: ApiCall[Nothing, Nothing]) -> Response:
    text = await call.context.metrics.get()
    return Response(text, headers={"content-type": METRICS_CONTENT_TYPE})


async def collect(context: ApiContext) -> str:
    """Collect all metrics. If the server is unavailable, only the metrics of this process."""
    samples = MetricSamples()
    samples.add(BUILD_METRIC, 1, qbull.__version__)
    samples.add(LISTENERS_METRIC, context.broadcaster.listeners)
    for (endpoint, status), count in sorted(context.answered.items()):
        samples.add(REQUESTS_METRIC, count, endpoint, str(status))
    try:
        async with asyncio.timeout(SCRAPE_TIMEOUT_SECONDS):
            await _collect(context, samples)
    except (ServerError, TimeoutError):
        samples = MetricSamples()  # Half of the metrics would look like all of them.
        samples.add(BUILD_METRIC, 1, qbull.__version__)
        samples.add(UP_METRIC, 0)
        _add_problems(samples, (unavailable(),))
        return samples.text()
    samples.add(UP_METRIC, 1)
    _add_problems(samples, (await context.health.get()).problems)
    return samples.text()


async def _collect(context: ApiContext, samples: MetricSamples) -> None:
    store = context.store.without_retry
    members = await store.workers()
    samples.add(WORKER_PROCESSES_METRIC, len(members))
    now = await server_time(store)
    queues = await context.queues()
    for queue in queues:
        counts = await queue.stats()
        layout = await context.app._client().router.layout(queue.settings)
        _add_counts(samples, queue.name, counts, now)
        _add_workers(samples, queue.name, members, layout)
        _add_histograms(samples, queue.name, await written.read(store, queue.name))
        samples.add(SCHEDULE_LAG_METRIC, await _lag(context, queue, now * 1000), queue.name)
    for status in await limit_statuses(store, [queue.settings for queue in queues]):
        _add_limit(samples, status, now)


def _add_limit(samples: MetricSamples, status: LimitStatus, now: float) -> None:
    rate = status.rate
    values = {
        "rate": None if rate is None else rate.count,
        "window_seconds": None if rate is None else rate.per,
        "used": None if rate is None else status.used,
        "concurrency": status.concurrency,
        "running": status.running,
        "daily": status.daily,
        "spent": status.spent,
    }
    for word, value in values.items():
        if value is not None:
            samples.add(LIMIT_METRICS[word], value, status.name)
    for queue, jobs in status.queues.items():
        samples.add(LIMIT_WAITING_METRIC, jobs, status.name, queue)
    oldest = 0.0 if status.since is None else max(now - status.since.timestamp(), 0.0)
    samples.add(LIMIT_OLDEST_METRIC, round(oldest, 3), status.name)
    samples.add(LIMIT_GRANTED_METRIC, status.granted, status.name)
    samples.add(LIMIT_RETURNED_METRIC, status.returned, status.name)


def _add_problems(samples: MetricSamples, problems: Sequence[HealthProblem]) -> None:
    status = status_of(problems)
    for one in get_args(HealthStatus):
        samples.add(HEALTH_METRIC, one == status, one)
    counted = Counter((one.kind, one.severity, one.queue or "") for one in problems)
    for labels, count in sorted(counted.items()):
        samples.add(PROBLEMS_METRIC, count, *labels)


def _add_counts(samples: MetricSamples, queue: str, counts: Counts, now: float) -> None:
    for state in ("waiting", "active", "delayed", "completed", "failed", "cancelled"):
        samples.add(JOBS_METRIC, getattr(counts, state), queue, state)
    oldest = 0.0 if counts.oldest_waiting_ms is None else max(now - counts.oldest_waiting_ms / 1000, 0.0)
    samples.add(OLDEST_WAITING_METRIC, round(oldest, 3), queue)
    samples.add(IN_LANES_METRIC, counts.in_lanes, queue)
    samples.add(PAUSED_METRIC, counts.paused, queue)
    for word, metric in TOTAL_METRICS.items():
        samples.add(metric, counts.totals.get(word, 0), queue)


def _add_workers(
    samples: MetricSamples, queue: str, members: dict[str, RegisteredWorker], layout: Layout
) -> None:
    serving = [member.queues[queue] for member in members.values() if queue in member.queues]
    read = {number for one in serving for number in one.partitions}
    there = {number for generation in layout.busy for number in generation.numbers}
    samples.add(PARTITIONS_METRIC, len(there), queue)
    samples.add(OWNED_PARTITIONS_METRIC, len(there & read), queue)
    samples.add(QUEUE_WORKERS_METRIC, len(serving), queue)
    samples.add(SLOTS_METRIC, sum(one.concurrency for one in serving), queue)


def _add_histograms(samples: MetricSamples, queue: str, named: dict[str, int]) -> None:
    durations, waits = histograms.read(named)
    samples.add(STARTED_METRIC, named.get(histograms.STARTED_FIELD, 0), queue)
    for task, histogram in bounded(durations).items():
        samples.add_histogram(DURATION_METRIC, histogram, queue, task)
    samples.add_histogram(WAIT_METRIC, waits, queue)
    samples.add(SCRIPT_ERRORS_METRIC, named.get(histograms.SCRIPT_ERRORS_FIELD, 0), queue)


def bounded(durations: dict[str, Histogram]) -> dict[str, Histogram]:
    """The histograms of the tasks that ran most often, and the sum of the others."""
    by_count = sorted(durations, key=lambda task: -durations[task].count)
    shown = {task: durations[task] for task in sorted(by_count[:MAX_TASK_LABELS])}
    if len(by_count) > MAX_TASK_LABELS:
        shown[OTHER_TASKS_LABEL] = Histogram.together(durations[task] for task in by_count[MAX_TASK_LABELS:])
    return shown


async def _lag(context: ApiContext, queue: Queue, now_ms: float) -> float:
    """How late the most overdue schedule of a queue is."""
    due = await first_due_ms(await context.app._client().router.partitions(queue.settings))
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
