"""Jobs: look at them, ask for them, and do something with one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote

from qbull import by_name
from qbull import wire as plain
from qbull.api import wire
from qbull.api.endpoint import Call, Endpoint, Nothing, Reply
from qbull.api.problems import Problem, Wrong
from qbull.api.site import now
from qbull.api.wire import shaped
from qbull.core.job import Attempt, JobInfo, moment
from qbull.errors import NotFound
from qbull.options import Options


async def jobs(call: Call[wire.JobsQuery, Nothing]) -> wire.Jobs:
    query = call.query
    queue = await call.site.queue(call.path["queue"])
    end = query.start + 10 if query.end is None else query.end
    if end < query.start:
        raise Problem(400, f"query: end: {end} is before start", errors=[Wrong("end", "is before start")])
    found = await queue.jobs(query.state, query.start, end)
    shown = [shown_job(call, info) for info in found]
    return wire.Jobs(timestamp=now(), queue=queue.name, state=query.state, jobs=shown)


async def job(call: Call[Nothing, Nothing]) -> wire.Job:
    return shown_job(call, await info_of(call))


async def job_history(call: Call[Nothing, Nothing]) -> wire.History:
    info = await info_of(call)
    runs = [_run(attempt) for attempt in info.history]
    if info.finished_at is not None:
        last = wire.Attempt(
            attempt=info.attempt,
            at=plain.moment(info.started_at),
            duration_ms=info.duration_ms or 0.0,
            error=info.error,
            worker=info.worker or "?",
        )
        runs.append(last)
    texts = [call.site.veil.text(run.error, info, call.caller) if run.error else None for run in runs]
    return wire.History(
        timestamp=now(),
        queue=info.queue,
        job_id=info.id,
        attempts=[_saying(run, text) for run, text in zip(runs, texts, strict=True)],
        worker=info.worker,
        crashes=info.crashes,
    )


async def enqueue(call: Call[Nothing, wire.NewJob]) -> Reply:
    queue = await call.site.queue(call.path["queue"])
    asked = call.body
    call.notes["target"] = f"{queue.name}/{asked.task}"
    call.site.veil.refuse_hidden(asked.payload)
    made = await by_name.enqueue(queue, asked.task, asked.payload, _options(asked.options))
    delayed = asked.options.delay or asked.options.at
    accepted = wire.Accepted(
        job_id=made.id, status="delayed" if delayed else "waiting", timestamp=now(), created=made.created
    )
    root = call.request.scope.get("root_path", "")
    return Reply(
        accepted, headers={"location": f"{root}/api/queues/{queue.name}/jobs/{quote(made.id, safe='')}"}
    )


def _options(asked: wire.JobOptions) -> Options:
    given: dict[str, Any] = {
        name: value for name in asked.__struct_fields__ if (value := getattr(asked, name)) is not None
    }
    if asked.at is not None:
        try:
            given["at"] = datetime.fromisoformat(asked.at)
        except ValueError:
            why = "is no moment; write it like 2030-01-31T12:00:00Z"
            raise Problem(400, f"body: options.at: {why}", errors=[Wrong("options.at", why)]) from None
    return Options(**given)


async def info_of(call: Call[Any, Any]) -> JobInfo:
    queue = await call.site.queue(call.path["queue"])
    info = await queue.job(call.path["id"]).info()
    if info is None:
        raise NotFound(
            f'queue "{queue.name}": no job {call.path["id"]}; it never was there, or is not kept any more'
        )
    return info


def shown_job(call: Call[Any, Any], info: JobInfo) -> wire.Job:
    return shaped(call.site.veil.job(plain.job(info), call.caller), wire.Job)


def _run(attempt: Attempt) -> wire.Attempt:
    return wire.Attempt(
        attempt=attempt.attempt,
        at=plain.moment(moment(attempt.at_ms)),
        duration_ms=attempt.duration_ms,
        error=attempt.error,
        worker=attempt.worker,
    )


def _saying(run: wire.Attempt, error: str | None) -> wire.Attempt:
    return wire.Attempt(
        attempt=run.attempt, at=run.at, duration_ms=round(run.duration_ms, 3), error=error, worker=run.worker
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/{queue}/jobs",
        role="viewer",
        summary="Jobs of one state: finished ones newest first, others in the order in which they will run",
        handler=jobs,
        query=wire.JobsQuery,
        answer=wire.Jobs,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/queues/{queue}/jobs",
        role="admin",
        summary="Enqueue a job; its address to ask about it is in the header Location",
        handler=enqueue,
        body=wire.NewJob,
        answer=wire.Accepted,
        status=202,
        problems=(404, 413),
        audit="enqueue",
        counted=True,
    ),
    Endpoint(
        method="GET",
        path="/api/queues/{queue}/jobs/{id}",
        role="viewer",
        summary="One job",
        handler=job,
        answer=wire.Job,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path="/api/queues/{queue}/jobs/{id}/history",
        role="viewer",
        summary="The runs of a job, the oldest first",
        handler=job_history,
        answer=wire.History,
        problems=(404,),
    ),
]
