"""`qbull jobs` and `qbull job`: list jobs, and show everything about one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from qbull.cli.dead_letters import filtered
from qbull.cli.steps import print_published, print_steps
from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import ago, json_text, lines_of, print_json, print_table, short, span
from qbull.core.ids import check_name
from qbull.core.job_filter import JobFilterArguments
from qbull.core.job_info import AttemptInfo, JobInfo
from qbull.core.job_query import parse_query
from qbull.core.progress import Progress
from qbull.core.record import STATES, State
from qbull.core.why import Why
from qbull.errors import ConfigError, NotFound, job_not_found
from qbull.manage.job_search import FoundJobs, SearchRequest, find_jobs
from qbull.observe.log import one_line
from qbull.queue import Queue
from qbull.store.verbs.progress import LogLine
from qbull.views.jobs import LogLineView, ReasonView, WhyShape
from qbull.views.shape import field_list, iso_time, to_plain, view_of
from qbull.views.steps import StepView

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class JobsPage:
    """Which of the jobs to list: by position, or after the cursor of the previous page."""

    start: int
    end: int
    cursor: str | None


def _with_page(command: F) -> F:
    """Turn --start, --end and --cursor into a JobsPage, which the command gets as `page`."""

    @functools.wraps(command)
    def with_page(target: Target, *, start: int, end: int, cursor: str | None, **rest: Any) -> Any:
        return command(target, page=JobsPage(start, end, cursor), **rest)

    return with_page  # type: ignore[return-value]


@click.command()
@click.argument("words", nargs=-1, metavar="[QUEUE | QUERY]")
@click.option("--state", type=click.Choice(STATES), help="State of the jobs of QUEUE.  [default: waiting]")
@click.option(
    "--start", type=click.IntRange(0), default=0, show_default=True, help="Position of the first job."
)
@click.option(
    "--end", type=click.IntRange(0), default=10, show_default=True, help="Position after the last job."
)
@click.option("--cursor", help="Continue after the previous page, which printed this cursor.")
@filtered
@on_target
@as_json
@_with_page
def jobs(
    target: Target,
    words: tuple[str, ...],
    state: State | None,
    page: JobsPage,
    filters: JobFilterArguments,
    as_json: bool,
) -> None:
    """List the jobs of one state, or search all queues.

    With the name of a queue: finished jobs are listed newest first, other jobs in the order in which they
    will run. Finished jobs can be filtered by task, error and time; if there may be more of them, a cursor is
    printed.

    With a query: the newest matching jobs of all queues and states. Its terms are fields, such as
    args.customer_id:c-606, -task:ping or since:1h, and words, which are searched in ids, keys and arguments.

    \b
    Example:
      qbull jobs email --state failed
      qbull jobs email --state failed --task verify --error-contains timeout --after 2030-01-31T12:00:00Z
      qbull jobs queue:email state:failed 'error:"421 try again"' since:1h
      qbull jobs c-606

    With --json: a list of jobs, each as "qbull job" prints it.
    """

    async def main() -> None:
        if len(words) != 1 or not await _is_queue(target, words[0], state, filters):
            _refuse_options_of_queue(state, page, filters)
            is_any = await _print_search(target, " ".join(words), page, as_json)
            if not is_any and len(words) == 1 and _may_be_queue(words[0]):
                await target.queue(words[0])  # Says that there is no such queue.
            return
        await _print_queue(target, words[0], state or "waiting", page, filters, as_json)

    target.run(main)


async def _is_queue(target: Target, word: str, state: State | None, filters: JobFilterArguments) -> bool:
    """Whether a word names a queue and is no query. With options of a queue it does in any case."""
    if not _may_be_queue(word):
        return False
    if state is not None or any(filters.values()):
        return True
    await target.store.open()
    return word in target.app.queues or word in await target.store.queues()


def _may_be_queue(word: str) -> bool:
    try:
        check_name("queue", word)
    except ConfigError:
        return False
    return True


def _refuse_options_of_queue(state: State | None, page: JobsPage, filters: JobFilterArguments) -> None:
    given = ["state"] if state is not None else [name for name, value in filters.items() if value is not None]
    if given:
        flag = given[0].replace("_", "-")
        raise click.UsageError(
            f"--{flag} needs the name of one queue; write it into the query, as in task:verify"
        )
    if page.start:
        raise click.UsageError("--start counts the jobs of one queue; continue a search with --cursor")


async def _print_search(target: Target, text: str, page: JobsPage, as_json: bool) -> bool:
    """Search until enough jobs are found or all are read; whether there are any."""
    limit, query = max(page.end, 1), parse_query(text, datetime.now(UTC), None)
    request = SearchRequest(await target.queues(), query, limit=limit, cursor=page.cursor)
    progress = _SearchProgress()
    infos: list[JobInfo] = []
    while True:
        found = await find_jobs(request)
        infos += found.jobs
        if found.next is None or len(infos) >= limit:
            break
        progress.show(len(infos), found)
        request = replace(request, limit=limit - len(infos), cursor=found.next)
    progress.end()
    if as_json:
        print_json(to_plain(infos))
    elif infos:
        print_table(*_search_table(infos))
    if found.next is not None:
        click.echo(f"read {found.scanned:,} of {found.total:,} jobs; more: --cursor {found.next}", err=True)
    elif not infos and not _may_be_queue(text):
        click.echo(f"no matching jobs; read all {found.total:,}", err=True)
    return bool(infos)


class _SearchProgress:
    """A progress line that overwrites itself. Silent if stderr is not a terminal."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, matches: int, found: FoundJobs) -> None:
        if sys.stderr.isatty():
            self._shown = True
            click.echo(
                f"\r{matches} found, {found.scanned:,} of {found.total:,} jobs read", nl=False, err=True
            )

    def end(self) -> None:
        if self._shown:
            click.echo(err=True)


async def _print_queue(
    target: Target,
    queue_name: str,
    state: State,
    page: JobsPage,
    filters: JobFilterArguments,
    as_json: bool,
) -> None:
    is_search = page.cursor is not None or any(filters.values())
    if is_search and page.start:
        raise click.UsageError("--start counts all jobs; with a filter, continue with --cursor")
    queue = await target.queue(queue_name)
    if is_search:
        result = await queue.search(state, limit=max(page.end, 1), cursor=page.cursor, **filters)
        infos = result.jobs
        if result.next is not None:
            click.echo(f"there may be more: --cursor {result.next}", err=True)
    else:
        infos = await queue.jobs(state, page.start, page.end)
    if as_json:
        print_json(to_plain(infos))
    elif infos:
        print_table(*_table(state, infos))
    else:
        click.echo(await _no_jobs(queue, "matching " * is_search + state, page.start), err=True)


def _search_table(infos: list[JobInfo]) -> tuple[tuple[str, ...], list[list[object]]]:
    rows: list[list[object]] = [
        [
            info.queue,
            info.id,
            info.task,
            info.state,
            ago(info.finished_at or info.started_at or info.created_at),
            short(info.error or info.payload, 200),
        ]
        for info in infos
    ]
    return ("queue", "id", "task", "state", "when", "*error or payload"), rows


JOB_HELP = f"""Show one job, its logs, its steps, or why it is not running.

\b
Example:
  qbull job email 0199c2f0a1b27000b4a1f3c2d5e6f708
  qbull job why email 0199c2f0a1b27000b4a1f3c2d5e6f708
  qbull job email 0199c2f0a1b27000b4a1f3c2d5e6f708 --logs
  qbull job orders 0199c2f0a1b27000b4a1f3c2d5e6f708 --steps
  qbull job orders 0199c2f0a1b27000b4a1f3c2d5e6f708 --published

With --json: {field_list(JobInfo)}.

With --logs --json: a list of {{{field_list(LogLineView)}}}.

With --steps --json: a list of {{{field_list(StepView)}}}.

With --published --json: an object with the value of each name.

With why --json: {field_list(WhyShape)}; each reason has {field_list(ReasonView)}.
"""


@click.command(help=JOB_HELP)
@click.argument("words", nargs=-1, metavar="[why] QUEUE ID")
@click.option("--logs", is_flag=True, help="Show only the log lines of the job.")
@click.option("--steps", is_flag=True, help="Show only the recorded steps of a durable job.")
@click.option("--published", is_flag=True, help="Show only the values that a durable job has published.")
@on_target
@as_json
def job(
    target: Target, words: tuple[str, ...], logs: bool, steps: bool, published: bool, as_json: bool
) -> None:
    """Show one job, its logs, its steps, or why it is not running."""
    asks_why = len(words) == 3 and words[0] == "why"
    if len(words) != 2 and not asks_why:
        raise click.UsageError("expected a queue and the id of a job")
    queue_name, id = words[-2:]

    async def main() -> None:
        queue = await target.queue(queue_name)
        if asks_why:
            _print_why(await queue.job(id).why(), as_json)
            return
        if logs:
            _print_logs(await queue.job(id).logs(), as_json)
            return
        if steps:
            print_steps(await queue.job(id).steps(), as_json)
            return
        if published:
            print_published(await queue.job(id)._all_published(), as_json)
            return
        info = await queue.job(id).info()
        if info is None:
            raise job_not_found(queue_name, id)
        if as_json:
            print_json(to_plain(info))
        else:
            click.echo("\n".join(_details(info)))

    target.run(main)


def _print_why(answer: Why, as_json: bool) -> None:
    if answer.state is None:
        raise NotFound(str(answer))
    if as_json:
        print_json(to_plain(view_of(WhyShape, answer)))
        return
    for reason in answer.reasons:
        click.echo(one_line(f"{reason.code:<10} {reason.text}"))


def _print_logs(lines: list[LogLine], as_json: bool) -> None:
    if as_json:
        print_json([to_plain(view_of(LogLineView, line)) for line in lines])
    for line in [] if as_json else lines:
        level = "" if line.level == "info" else f"{line.level.upper()} "
        click.echo(f"{iso_time(line.at)}  {line.attempt}  {level}{one_line(line.text)}")


def _table(state: State, infos: list[JobInfo]) -> tuple[tuple[str, ...], list[list[object]]]:
    content, when = {
        "completed": ("result", "finished"),
        "failed": ("error", "finished"),
        "cancelled": ("payload", "finished"),
        "delayed": ("payload", "due"),
        "active": ("payload", "started"),
    }.get(state, ("payload", "enqueued"))
    times = {"finished": "finished_at", "due": "due_at", "started": "started_at", "enqueued": "created_at"}
    rows: list[list[object]] = [
        [
            info.id,
            info.task,
            info.key,
            f"{info.attempt}/{info.max_attempts}",
            ago(getattr(info, times[when])),
            short(getattr(info, content), 200),
        ]
        for info in infos
    ]
    return ("id", "task", "key", ">attempt", when, "*" + content), rows


async def _no_jobs(queue: Queue, state: str, start: int) -> str:
    counts = await queue.stats()
    others = [f"{getattr(counts, other)} {other}" for other in STATES if getattr(counts, other)]
    position = f" from position {start} on" if start else ""
    return f'queue "{queue.name}": no {state} jobs{position}; it has: {", ".join(others) or "no jobs at all"}'


def _state(info: JobInfo) -> str:
    if info.suspended is None:
        return info.state
    names = " or ".join(f'"{name}"' for name in info.waits_for)
    return f"{info.state}, {info.suspended}" + (f" for {names}" if names else "")


def _progress(info: JobInfo) -> str | None:
    done, total, note = info.progress_done, info.progress_total, info.progress_note
    return None if info.progress is None else Progress(info.progress, done, total, note).shown()


def _details(info: JobInfo) -> list[str]:
    facts: list[tuple[str, object]] = [
        ("queue", f"{info.queue}, partition {info.partition}"),
        ("task", info.task),
        ("schedule", info.schedule),
        ("flow", info.flow),
        ("state", _state(info)),
        ("key", info.key),
        ("priority", info.priority),
        ("attempt", f"{info.attempt} of {info.max_attempts}"),
        ("restarts", info.continued or None),
        ("progress", _progress(info)),
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
    lines += _section("payload", json_text(info.payload))
    if info.state == "completed":
        lines += _section("result", json_text(info.result))
    if info.error is not None and info.state in ("failed", "cancelled"):
        lines += _section("error", info.error)
    if info.stacktrace:
        lines += _section("traceback", info.stacktrace)
    if info.history:
        lines += ["", "earlier attempts"]
        for attempt in info.history:
            lines += [f"  {_attempt(attempt)}", *_traceback(attempt)]
    return lines


def _traceback(attempt: AttemptInfo) -> list[str]:
    return [] if attempt.stacktrace is None else [f"     {line}" for line in lines_of(attempt.stacktrace)]


def _section(title: str, text: str) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines_of(text))]


def _time(info: JobInfo, name: str) -> str | None:
    at = getattr(info, name)
    return None if at is None else f"{iso_time(at)} ({ago(at)})"


def _attempt(attempt: AttemptInfo) -> str:
    at = "" if attempt.at is None else iso_time(attempt.at)
    took = span(attempt.duration_ms / 1000)
    return f"{attempt.attempt}. {at}, {took}, {one_line(attempt.error or 'no error')}"
