"""The commands of `qbull`: where each one is, and what it does in one line.

The lines stand here a second time, so that `qbull --help` imports none of the commands. A test compares them
with the commands.
"""

from __future__ import annotations

COMMAND_GROUPS = {
    "Develop": {
        "demo": ("qbull.cli.demo.command:demo", "Show qbull at work on an embedded Valkey."),
        "init": ("qbull.cli.init:init", "Create a project in DIR to start from."),
        "dev": ("qbull.cli.dev.command:dev", "Run MODULE:APP while you work on it; reload when you save."),
        "enqueue": (
            "qbull.cli.enqueue:enqueue",
            "Enqueue a job and print its id, or with --wait its result.",
        ),
        "run-job": ("qbull.cli.run_job:run_job", "Run the task of one job here, and print its result."),
        "stub": ("qbull.cli.stub:stub", "Write a typed module for programs that enqueue by name."),
    },
    "Run": {
        "worker": ("qbull.cli.worker:worker", "Run jobs of the app in MODULE:APP until SIGTERM or Ctrl-C."),
        "serve": ("qbull.cli.serve:serve", "Serve the REST API and the dashboard of MODULE:APP."),
        "relay": ("qbull.cli.relay:relay", "Ship the PostgreSQL outbox to the queues until Ctrl-C."),
        "migrate": ("qbull.cli.migrate:migrate", "Create or upgrade qbull's tables in PostgreSQL."),
    },
    "Inspect": {
        "queues": ("qbull.cli.queues:queues", "List the queues with their counts."),
        "stats": ("qbull.cli.queues:stats", "Show the counts and settings of one queue."),
        "jobs": ("qbull.cli.jobs:jobs", "List the jobs of one state, or search all queues."),
        "job": ("qbull.cli.jobs:job", "Show one job, its logs, its steps, or why it is not running."),
        "stream": ("qbull.cli.stream:stream", "Print the values that a job emits, until it ends."),
        "failures": ("qbull.cli.dead_letters:failures", "Group failed jobs by error."),
        "slow": ("qbull.cli.slow:slow", "Show the slowest tasks and the longest runs."),
        "stack": ("qbull.cli.stack:stack", "Show where the task of a running job is."),
        "workers": ("qbull.cli.workers:workers", "List the live worker processes."),
        "partitions": (
            "qbull.cli.partitions:partitions",
            "Show a queue's partitions, their readers and counts.",
        ),
        "settings": (
            "qbull.cli.live_settings:settings",
            "Show the effective settings of a queue and their changes.",
        ),
        "doctor": (
            "qbull.cli.doctor.command:doctor",
            "Check server, queues and workers, and suggest remedies.",
        ),
    },
    "Manage jobs": {
        "cancel": (
            "qbull.cli.job_actions:cancel",
            "Cancel a job, or all jobs that match, and stop running ones.",
        ),
        "retry": ("qbull.cli.job_actions:retry", "Run a failed or cancelled job again."),
        "promote": ("qbull.cli.job_actions:promote", "Run a delayed job now."),
        "reschedule": ("qbull.cli.job_actions:reschedule", "Change when jobs may run that have not started."),
        "update": ("qbull.cli.job_actions:update", "Change the arguments of a job that has not started."),
        "signal": ("qbull.cli.job_actions:signal", "Send a signal to a durable job."),
        "fork": ("qbull.cli.fork:fork", "Run an ended durable job again from one of its steps."),
        "remove": ("qbull.cli.job_actions:remove", "Delete a job permanently."),
        "redrive": ("qbull.cli.dead_letters:redrive", "Run failed jobs again, oldest first."),
        "acknowledge": ("qbull.cli.acknowledge:acknowledge", "Acknowledge a kind of error, with a note."),
        "clean": ("qbull.cli.dead_letters:clean", "Delete finished jobs by age."),
        "purge": ("qbull.cli.bulk:purge", "Delete jobs that have not started."),
    },
    "Manage queues": {
        "move": ("qbull.cli.move:move", "Move queues with all their jobs to another server."),
        "pause": ("qbull.cli.pause:pause", "Pause a queue, or all: start no more of its jobs."),
        "resume": ("qbull.cli.pause:resume", "Resume a paused queue, or all."),
        "configure": ("qbull.cli.live_settings:configure", "Change settings of a queue for all its workers."),
        "reset": ("qbull.cli.live_settings:reset", "Reset settings of a queue to those in its code."),
        "limits": ("qbull.cli.limits:limits", "List shared limits with their use, and change them."),
        "repartition": (
            "qbull.cli.repartition:repartition",
            "Change the number of partitions of a queue in use.",
        ),
        "schedules": (
            "qbull.cli.schedules:schedules",
            "List schedules with their next runs, and change them.",
        ),
        "run": ("qbull.cli.schedules:run", "Run a schedule now and print the job's id."),
    },
    "Administer and integrate": {
        "alerts": ("qbull.cli.alerts:alerts", "Show alert destinations and open problems; send a test."),
        "token": ("qbull.cli.token:token", "Create, list, rotate and revoke tokens of the REST API."),
        "audit": ("qbull.cli.audit:audit", "Show who changed what, the newest first."),
        "acl": ("qbull.cli.acl:print_acl", "Print the rights that a Redis user needs for a role."),
        "check-celery": (
            "qbull.cli.check_celery.command:check_celery",
            "Check whether a Celery project can move to qbull.",
        ),
        "drain": ("qbull.cli.drain_django:drain", "Move waiting jobs from another job queue into qbull."),
    },
}
"""Each command with its function and its summary, by purpose. The help lists them in this order."""

HIDDEN_COMMANDS = {
    "dev-process": "qbull.cli.dev.process:dev_process",
}
"""Commands that other commands start. The help does not list them."""

SUMMARIES = {name: summary for group in COMMAND_GROUPS.values() for name, (_, summary) in group.items()}
COMMANDS = {
    name: path for group in COMMAND_GROUPS.values() for name, (path, _) in group.items()
} | HIDDEN_COMMANDS
