"""The errors that a public method raises on purpose, beside those that every call to the server may raise."""

from __future__ import annotations

SERVER = "Every call to the server may also raise `ServerAway` or `ServerRefused`."
ARGUMENTS = "`ArgumentsError` if the arguments do not fit the task"
TOO_LARGE = "`PayloadError` or `TooLarge` if they cannot be encoded or are too large"
NOT_CONFIRMED = "`NotConfirmed` if the durability was not reached in time"
ENQUEUE = (ARGUMENTS, TOO_LARGE, NOT_CONFIRMED)
NOT_FOUND = "`NotFound` for an unknown job"
SEND = ("`NotFound` for an unknown queue or task", *ENQUEUE)
ENDED = (
    "`JobFailed` if the job failed permanently",
    "`JobCancelled` if it was cancelled",
    "`ResultTimeout` if it has not ended in time",
    NOT_FOUND,
)

RAISES: dict[str, tuple[str, ...]] = {
    "App.queue": ("`DeclarationError` for settings that are wrong, or a name that is declared already",),
    "App.send": SEND,
    "App.send_many": SEND,
    "App.send_sync": SEND,
    "App.send_many_sync": SEND,
    "Queue.task": ("`DeclarationError` for a wrong declaration",),
    "Queue.cron": ("`DeclarationError` for a wrong expression, time zone or declaration",),
    "Queue.pause": ("`ResultTimeout` if jobs still run after `wait` seconds",),
    "Queue.configure": ("`ConfigError` for values that are not allowed",),
    "Queue.repartition": ("`ConfigError` for a number that is not allowed",),
    "Task.enqueue": ENQUEUE,
    "Task.enqueue_many": ENQUEUE,
    "Task.enqueue_sync": ENQUEUE,
    "Task.enqueue_many_sync": ENQUEUE,
    "Queue.jobs": ("`ConfigError` for an unknown state",),
    "Queue.search": ("`ArgumentsError` for a wrong state, limit or cursor",),
    "Queue.failures": ("`ArgumentsError` for a number that is not allowed",),
    "Queue.redrive": ("`ArgumentsError` for a wrong filter or rate",),
    "Queue.clean": ("`ArgumentsError` for a wrong state or age",),
    "Queue.cancel": ("`ArgumentsError` for a wrong state or filter",),
    "Queue.reschedule": ("`ArgumentsError` for a wrong state or time",),
    "Queue.purge": ("`ArgumentsError` for a wrong state",),
    "Task.options": ("`ArgumentsError` for values that are not allowed",),
    "Task.check": (ARGUMENTS,),
    "Job.result": ENDED,
    "Job.logs": ("`ArgumentsError` for a number that is not allowed",),
    "Job.signal": (NOT_FOUND, "`Conflict` if the job has ended"),
    "Job.cancel": (NOT_FOUND, "`Conflict` if the job has ended"),
    "Job.stream": (NOT_FOUND,),
    "Job.retry": (NOT_FOUND, "`Conflict` unless the job has failed or was cancelled"),
    "Job.promote": (NOT_FOUND, "`Conflict` unless the job is delayed"),
    "Job.reschedule": (NOT_FOUND, "`Conflict` if the job has started"),
    "Job.update": (NOT_FOUND, "`Conflict` if the job has started", ARGUMENTS),
    "Job.remove": ("`Conflict` for a running job",),
    "CurrentJob.emit": ("`TakenOver` if another worker has the job by now",),
    "CurrentJob.wait_for": (
        "`SignalTimeout` if no signal came in time",
        "`SignalMismatch` if its value does not fit the type",
    ),
    "CurrentJob.call": ("`JobFailed` if the called job fails permanently",),
    "Flow.result": ENDED,
    "Flow.rerun": (NOT_FOUND, "`Conflict` if a job of the part has not ended"),
    "ResultStore.get": ("`NotFound` if the bytes are no longer stored",),
}
