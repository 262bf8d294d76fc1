"""Dead letters: jobs that have failed permanently in another library become failed jobs here, each once."""

from __future__ import annotations

from typing import Any

from qbull.core.record import Ending, append_ending, with_created
from qbull.core.stacktrace import MAX_ERROR_CHARS, MAX_STACKTRACE_CHARS
from qbull.drain.prepared import PreparedJob
from qbull.job import Job
from qbull.produce.chain import Request
from qbull.produce.router import PlacedJob
from qbull.store.verbs.closed_partition import PartitionClosed
from qbull.store.verbs.failed_jobs import FailedJob, import_failed

DRAIN_WORKER = "qbull drain"
"""The worker that an imported dead letter names."""


async def deliver_failed(prepared: PreparedJob, request: Request) -> None:
    """Add one dead letter, within the app's tracing and middleware. Idempotent."""
    app = prepared.queue.app

    async def send() -> list[list[Job[Any]]]:
        await _send(prepared, request)
        return [[Job(prepared.id, True, prepared.queue)]]

    if app._chain is None:
        await send()
    else:
        await app._chain.run([request], send, request)


async def _send(prepared: PreparedJob, request: Request) -> None:
    queue, app = prepared.queue, prepared.queue.app
    client, durability = app._client(), app.durability
    layout = await queue._producer.layout(client, durability)
    options = request.carried(request.options)
    placed = queue._producer.place(layout, prepared.task, prepared.arguments, options)
    [placed] = await queue._producer.offload([placed])
    dead = _failed_job(prepared, placed)
    confirmed = client.store.confirmed(durability) if durability is not None else None
    while True:
        try:
            partition = client.router.partition(queue.settings, placed.number)
            return await import_failed(partition, confirmed, [dead])
        except PartitionClosed:
            placed = placed.moved_to(await client.router.layout(queue.settings))


def _failed_job(prepared: PreparedJob, placed: PlacedJob) -> FailedJob:
    failure, window = prepared.failure, placed.unique
    assert failure is not None
    assert window is not None
    stacktrace = failure.stacktrace[-MAX_STACKTRACE_CHARS:] if failure.stacktrace else None
    error = failure.error[:MAX_ERROR_CHARS] or "no reason was given"
    ending = Ending(failure.attempts, 0.0, DRAIN_WORKER, error=error, stacktrace=stacktrace)
    record = placed.job.record
    if failure.created_ms:
        record = with_created(record, failure.created_ms)
    return FailedJob(prepared.id, record + append_ending(ending), window.name, window.window_ms)
