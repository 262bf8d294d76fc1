"""Durable checks of `qbull doctor`: can the loaded code continue the durable jobs that are in flight?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.cli.target import Target
from qbull.core.signals import WAIT_PREFIX
from qbull.errors import QbullError
from qbull.manage.unfit_histories import (
    LoadedTasks,
    TaskHistories,
    UnfitJobs,
    look_at_histories,
    total_looked,
)

MAX_SHOWN_JOBS = 5


async def check_histories(target: Target) -> AsyncIterator[Finding]:
    """Compare the recorded steps of jobs in flight with the code of --app. Runs none of it."""
    if not target.has_code:
        return
    tasks, histories = LoadedTasks(target.app.queues), list[TaskHistories]()
    for queue in target.app.queues.values():
        try:
            histories += await look_at_histories(target.store, queue, tasks)
        except QbullError:
            # The check of the queue has reported it.
            continue
    for one in histories:
        for unfit in one.unfit:
            yield _judge(one, unfit)
        if not one.is_known:
            fact = "its code chooses steps at run time, so the recorded ones were not compared with it"
            yield note(_subject(one), fact)
    if histories and not any(one.unfit for one in histories):
        fact = f"the loaded code knows the recorded steps of the {total_looked(histories):,} jobs looked at"
        yield ok("durable tasks", fact)


def _judge(one: TaskHistories, unfit: UnfitJobs) -> Finding:
    subject, jobs = _subject(one), _jobs(one, unfit)
    steps = f'"qbull job {one.queue} {unfit.jobs[0]} --steps" shows the recorded steps'
    match unfit.reason:
        case "gone":
            fact = f"{jobs} cannot continue: the loaded code does not declare this task"
            return problem(subject, fact, f"declare the task again until they have ended; {steps}")
        case "plain":
            fact = f"{jobs} cannot continue: the task is no longer durable, so recorded steps would not count"
            return problem(subject, fact, f"add durable=True until they have ended; {steps}")
        case "step":
            fact = (
                f'{jobs} may not continue: number {unfit.number} of the recorded steps is "{unfit.step}", '
                "and the loaded code does not mention it"
            )
            return note(subject, fact, f"keep the old path with job.patched() until they have ended; {steps}")
        case "signal":
            name = unfit.step.removeprefix(WAIT_PREFIX)
            fact = f'{jobs} may wait in vain for the signal "{name}": the loaded code does not mention it'
            return note(subject, fact, f'run "qbull promote {one.queue} {unfit.jobs[0]}" to continue')


def _subject(one: TaskHistories) -> str:
    return f'task "{one.task}" of queue "{one.queue}"'


def _jobs(one: TaskHistories, unfit: UnfitJobs) -> str:
    shown = ", ".join(unfit.jobs[:MAX_SHOWN_JOBS]) + (" …" if len(unfit.jobs) > MAX_SHOWN_JOBS else "")
    some = "" if one.is_complete else "there are more; "
    return f"{len(unfit.jobs):,} of {one.looked:,} jobs looked at ({some}{shown})"
