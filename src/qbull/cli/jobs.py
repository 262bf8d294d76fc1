"""`qbull jobs` and `qbull job`: which jobs there are, and everything about one."""

from __future__ import annotations

import click

from qbull.cli.dead_letters import filtered
from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import ago, json_text, lines_of, print_json, print_table, short, span
from qbull.core.job_filter import JobFilterArguments
from qbull.core.job_info import AttemptInfo, JobInfo
from qbull.core.record import STATES, State
from qbull.core.why import Why
from qbull.errors import NotFound
from qbull.observe.log import one_line
from qbull.queue import Queue
from qbull.store.verbs.progress import LogLine
from qbull.views.jobs import LogLineView, ReasonView, WhyShape
from qbull.views.shape import field_list, iso_time, to_plain, view_of


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.option(
    "--state", type=click.Choice(STATES), default="waiting", show_default=True, help="Of which state."
)
@click.option("--start", type=click.IntRange(0), default=0, show_default=True, help="From which position.")
@click.option("--end", type=click.IntRange(0), default=10, show_default=True, help="Up to which position.")
@click.option("--cursor", help="Go on after what the page before has shown.")
@filtered
@on_target
@as_json
def jobs(
    target: Target,
    queue_name: str,
    state: State,
    start: int,
    end: int,
    cursor: str | None,
    filters: JobFilterArguments,
    as_json: bool,
) -> None:
    """List the jobs of one state.

    Finished ones come newest first, others in the order in which they will run. Finished ones can be chosen by task,
    error and time; a cursor is printed where there may be more.

    \b
    Example:
      qbull jobs email --state failed
      qbull jobs email --state failed --task verify --error-contains timeout --after 2030-01-31T12:00:00Z

    With --json: a list of what "qbull job" prints.
    """
    chosen = cursor is not None or any(filters.values())
    if chosen and start:
        raise click.UsageError("--start counts all jobs; with a filter go on with --cursor")

    async def main() -> None:
        queue = await target.queue(queue_name)
        if chosen:
            page = await queue.search(state, limit=max(end, 1), cursor=cursor, **filters)
            found = page.jobs
            if page.next is not None:
                click.echo(f"there may be more: --cursor {page.next}", err=True)
        else:
            found = await queue.jobs(state, start, end)
        if as_json:
            print_json(to_plain(found))
        elif found:
            print_table(*_table(state, found))
        else:
            click.echo(await _nothing(queue, "such " * chosen + state, start), err=True)

    target.run(main)


JOB_HELP = f"""Show one job, its log lines, or why it is not running.

\b
Example:
  qbull job email 0199c2f0a1b27000b4a1f3c2d5e6f708
  qbull job why email 0199c2f0a1b27000b4a1f3c2d5e6f708
  qbull job email 0199c2f0a1b27000b4a1f3c2d5e6f708 --logs

With --json: {field_list(JobInfo)}.

With --logs --json: a list of {{{field_list(LogLineView)}}}.

With why --json: {field_list(WhyShape)}; each reason has {field_list(ReasonView)}.
"""


@click.command(help=JOB_HELP)
@click.argument("words", nargs=-1, metavar="[why] QUEUE ID")
@click.option("--logs", is_flag=True, help="What its task has logged, and nothing else.")
@on_target
@as_json
def job(target: Target, words: tuple[str, ...], logs: bool, as_json: bool) -> None:
    """Show one job, its log lines, or why it is not running."""
    asks_why = len(words) == 3 and words[0] == "why"
    if len(words) != 2 and not asks_why:
        raise click.UsageError("give a queue and the id of a job")
    queue_name, id = words[-2:]

    async def main() -> None:
        queue = await target.queue(queue_name)
        if asks_why:
            _show_why(await queue.job(id).why(), as_json)
            return
        if logs:
            _show_logs(await queue.job(id).logs(), as_json)
            return
        info = await queue.job(id).info()
        if info is None:
            raise NotFound(f'queue "{queue_name}": no job {id}; it never was there, or is not kept any more')
        if as_json:
            print_json(to_plain(info))
        else:
            click.echo("\n".join(_page(info)))

    target.run(main)


def _show_why(answer: Why, as_json: bool) -> None:
    if answer.state is None:
        raise NotFound(str(answer))
    if as_json:
        print_json(to_plain(view_of(WhyShape, answer)))
        return
    for reason in answer.reasons:
        click.echo(one_line(f"{reason.code:<10} {reason.text}"))


def _show_logs(lines: list[LogLine], as_json: bool) -> None:
    if as_json:
        print_json([to_plain(view_of(LogLineView, line)) for line in lines])
    for line in [] if as_json else lines:
        click.echo(f"{iso_time(line.at)}  {line.attempt}  {one_line(line.text)}")


def _table(state: State, found: list[JobInfo]) -> tuple[tuple[str, ...], list[list[object]]]:
    what, when = {
        "completed": ("result", "finished"),
        "failed": ("error", "finished"),
        "cancelled": ("payload", "finished"),
        "delayed": ("payload", "due"),
    }.get(state, ("payload", "enqueued"))
    times = {"finished": "finished_at", "due": "due_at", "enqueued": "created_at"}
    rows: list[list[object]] = [
        [
            info.id,
            info.task,
            info.key,
            f"{info.attempt}/{info.max_attempts}",
            ago(getattr(info, times[when])),
            short(getattr(info, what), 200),
        ]
        for info in found
    ]
    return ("id", "task", "key", ">attempt", when, "*" + what), rows


async def _nothing(queue: Queue, state: str, start: int) -> str:
    counts = await queue.stats()
    others = [f"{getattr(counts, other)} {other}" for other in STATES if getattr(counts, other)]
    where = f" from position {start} on" if start else ""
    return f'queue "{queue.name}": no {state} jobs{where}; it has: {", ".join(others) or "no jobs at all"}'


def _page(info: JobInfo) -> list[str]:
    facts: list[tuple[str, object]] = [
        ("queue", f"{info.queue}, partition {info.partition}"),
        ("task", info.task),
        ("schedule", info.schedule),
        ("flow", info.flow),
        ("state", info.state),
        ("key", info.key),
        ("priority", info.priority),
        ("attempt", f"{info.attempt} of {info.max_attempts}"),
        ("progress", None if info.progress is None else f"{info.progress:g} %"),
        ("crashes", info.crashes or None),
        ("worker", info.worker),
        ("enqueued", _time(info, "created_at")),
        ("due", _time(info, "due_at")),
        ("start by", _time(info, "expires_at")),
        ("started", _time(info, "started_at")),
        ("finished", _time(info, "finished_at")),
        ("took", None if info.duration_ms is None else span(info.duration_ms / 1000)),
        ("timeout", None if info.timeout is None else span(info.timeout)),
    ]
    lines = [f"job {one_line(info.id)}", ""]
    lines += [f"  {name:<10}{one_line(str(value))}" for name, value in facts if value is not None]
    lines += _part("payload", json_text(info.payload))
    if info.state == "completed":
        lines += _part("result", json_text(info.result))
    if info.error is not None and info.state in ("failed", "cancelled"):
        lines += _part("error", info.error)
    if info.stacktrace:
        lines += _part("traceback", info.stacktrace)
    if info.history:
        lines += ["", "earlier attempts", *(f"  {_attempt(attempt)}" for attempt in info.history)]
    return lines


def _part(title: str, text: str) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines_of(text))]


def _time(info: JobInfo, name: str) -> str | None:
    at = getattr(info, name)
    return None if at is None else f"{iso_time(at)} ({ago(at)})"


def _attempt(attempt: AttemptInfo) -> str:
    at = "" if attempt.at is None else iso_time(attempt.at)
    took = span(attempt.duration_ms / 1000)
    return f"{attempt.attempt}. {at}, {took}, {one_line(attempt.error or 'no error')}"
