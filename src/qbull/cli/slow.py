"""`qbull slow`: the slowest tasks, and the jobs that have been running longest."""

from __future__ import annotations

import click

from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import print_json, print_table, span
from qbull.manage.slow import longest_running, slow_tasks
from qbull.views.shape import to_plain, view_of
from qbull.views.slow import LongRunView, SlowShape, TaskDurationsView


@click.command()
@click.argument("queue_name", metavar="[QUEUE]", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, 200),
    default=10,
    show_default=True,
    help="Number of tasks, and of running jobs.",
)
@on_target
@as_json
def slow(target: Target, queue_name: str | None, limit: int, as_json: bool) -> None:
    """Show the slowest tasks and the longest runs.

    \b
    Example:
      qbull slow
      qbull slow reports --limit 3

    Tasks are sorted by the 95th percentile of their runs, over all workers, since the queue exists. Running
    jobs are sorted by how long their worker has had them.

    With --json: {"tasks": [{"queue", "task", "runs", "meanMs", "p50Ms", "p95Ms"}], "running": [{"queue",
    "id", "task", "attempt", "worker", "startedAt", "runningMs"}]}.
    """

    async def main() -> None:
        queues = await target.queues() if queue_name is None else [await target.queue(queue_name)]
        await target.store.open()
        found = SlowShape(
            tasks=[view_of(TaskDurationsView, one) for one in await slow_tasks(target.store, queues, limit)],
            running=[
                view_of(LongRunView, run.job, running_ms=run.ms)
                for run in await longest_running(target.store, queues, limit)
            ],
        )
        if as_json:
            print_json(to_plain(found))
            return
        _print(found)

    target.run(main)


def _print(found: SlowShape) -> None:
    if found.tasks:
        rows = [
            [
                one.queue,
                one.task,
                one.runs,
                *(span(ms / 1000) for ms in (one.p95_ms, one.p50_ms, one.mean_ms)),
            ]
            for one in found.tasks
        ]
        print_table(("queue", "*task", ">runs", ">p95", ">p50", ">mean"), rows)
    else:
        click.echo("no task has run yet", err=True)
    if found.running:
        click.echo()
        jobs = [
            [run.queue, run.id, run.task, run.attempt, span(run.running_ms / 1000), run.worker]
            for run in found.running
        ]
        print_table(("queue", "job", "*task", ">attempt", ">running for", "worker"), jobs)
    else:
        click.echo("no job is running", err=True)
