"""`qbull drain`: move waiting jobs from another library, or from lists and streams, each exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from qbull.cli.drain_report import DrainProgress, drain_json, print_drain
from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import print_json
from qbull.compat.celery.broker import address_of
from qbull.core.cron import zone_of
from qbull.drain.deliver import JobImporter
from qbull.drain.move import DrainRun, JobSource
from qbull.drain.source import SourceServer
from qbull.errors import NotFound
from qbull.store import audit

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class DrainKind:
    """A kind of source, and what to do about the messages that its workers hold."""

    name: str
    held_advice: str = ""


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in value]
    for old, separator, new in pairs:
        if not (old and separator and new):
            raise click.BadParameter(f'"{old}": give two names of tasks as OLD=NEW', ctx, param)
    return {old: new for old, _, new in pairs}


def _zone(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return zone_of(value).key
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Add options to a command, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def moved_tasks(command: F) -> F:
    """Add the options that say which tasks get the jobs."""
    return _with_options(
        click.option(
            "--to",
            metavar="QUEUE",
            help="Queue to move all jobs to.  [default: the queue of the same name, else the queue of the "
            "task]",
        ),
        click.option(
            "--map",
            "names",
            multiple=True,
            metavar="OLD=NEW",
            callback=_names,
            help="Move jobs of the task OLD to the task NEW; may be given several times.",
        ),
        click.option("--dry-run", is_flag=True, help="Only report which jobs can be moved."),
        with_reason,
    )(command)


def _every_source(command: F) -> F:
    """Add the options that all sources have."""
    return _with_options(
        click.option("--from", "source", required=True, metavar="URL", help="Server that has the jobs."),
        moved_tasks,
        on_target,
        as_json,
    )(command)


_queue_option = click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Drain only this queue; may be given several times.",
)
_snake_case_option = click.option(
    "--snake-case", is_flag=True, help="Rename arguments: userId becomes user_id."
)


@dataclass(frozen=True)
class _DrainCommand:
    """The options of one call, and the run itself."""

    target: Target
    source: str
    to: str | None
    names: dict[str, str]
    dry_run: bool
    as_json: bool

    def run(
        self, kind: DrainKind, make: Callable[[SourceServer], JobSource], queues: Sequence[str] = ()
    ) -> int:
        async def main() -> int:
            server = SourceServer(address_of(self.source), kind.name)
            try:
                jobs = make(server)
                names = list(queues) or await jobs.queues()
                if not names and not await server.call("EXISTS", server.aside):
                    raise NotFound(
                        f"{server.server.address.shown}: no queue of {kind.name} found; "
                        "check its name and --from"
                    )
                importer = JobImporter(self.target.app, to=self.to, names=self.names)
                run = DrainRun(jobs, importer, dry=self.dry_run, on_step=DrainProgress())
                if self.dry_run:
                    report = await run.run(names)
                else:
                    async with audit.entry(self.target.store, "drain", kind.name, queues=names):
                        report = await run.run(names)
                        audit.note(jobs=report.moved.total())
            finally:
                await server.close()
            if self.as_json:
                print_json(drain_json(report, self.dry_run))
            else:
                print_drain(report, self.dry_run, kind.held_advice)
            return 1 if report.left and not self.dry_run else 0

        return self.target.run(main)


@click.group()
def drain() -> None:
    """Move waiting jobs from another job queue into qbull.

    Each job is moved exactly once, even if this command is killed: run it again to continue. Jobs that cannot
    be moved stay in place and are reported with the reason; the exit code is then 1. With --app the arguments
    are checked against the tasks and get their names; without it only calls with keyword arguments can be
    moved.

    \b
    Example:
      qbull drain celery --from redis://localhost:6379/0 --app shop:app --dry-run
      qbull drain bullmq --from redis://localhost:6379/0 --app shop:app
    """


@drain.command("celery")
@_queue_option
@click.option(
    "--unacked",
    is_flag=True,
    help="Also move unacknowledged messages. Use it only if no Celery worker is running.",
)
@click.option(
    "--timezone",
    default="UTC",
    show_default=True,
    callback=_zone,
    help="Time zone of an eta that has none.",
)
@click.option(
    "--key-prefix", default="", metavar="TEXT", help="The global_keyprefix of Celery, if it is set."
)
@_every_source
def drain_celery(
    target: Target, queues: tuple[str, ...], unacked: bool, timezone: str, key_prefix: str, **common: Any
) -> int:
    """Move jobs that wait in Celery.

    \b
    Example:
      qbull drain celery --from redis://localhost:6379/0 --app shop:app --dry-run
    """
    from qbull.drain.celery import CelerySource  # `qbull --help` loads this module and needs no source.

    advice = (
        "celery workers hold {count} messages; stop the workers, and they return them. "
        "If the workers were killed, use --unacked"
    )
    return _DrainCommand(target, **common).run(
        DrainKind("celery", "" if unacked else advice),
        lambda server: CelerySource(server, zone=timezone, prefix=key_prefix, unacked=unacked),
        queues,
    )


@drain.command("rq")
@_queue_option
@_every_source
def drain_rq(target: Target, queues: tuple[str, ...], **common: Any) -> int:
    """Move jobs that wait in RQ.

    \b
    Example:
      qbull drain rq --from redis://localhost:6379/0 --app shop:app --queue mail
    """
    from qbull.drain.rq import RqSource

    return _DrainCommand(target, **common).run(DrainKind("rq"), RqSource, queues)


@drain.command("bullmq")
@_queue_option
@click.option(
    "--active",
    is_flag=True,
    help="Also move jobs that a worker has started, if its lock has run out. Stop the workers first.",
)
@click.option("--no-failed", is_flag=True, help="Leave failed jobs where they are.")
@click.option(
    "--retry",
    type=click.Choice(["job", "task"]),
    default="job",
    show_default=True,
    help="Retry by the attempts and backoff of each job, or by the policy of its task here.",
)
@click.option(
    "--timezone",
    default="UTC",
    show_default=True,
    callback=_zone,
    help="Time zone of a repeat pattern that has none.",
)
@click.option("--key-prefix", default="bull", show_default=True, metavar="TEXT", help="The prefix of BullMQ.")
@_snake_case_option
@_every_source
def drain_bullmq(
    target: Target,
    queues: tuple[str, ...],
    timezone: str,
    key_prefix: str,
    no_failed: bool,
    **options: Any,
) -> int:
    """Move jobs from BullMQ or Bull: waiting, prioritized, delayed and failed jobs, and job schedulers.

    A failed job becomes a dead letter. A job scheduler becomes a schedule.

    \b
    Example:
      qbull drain bullmq --from redis://localhost:6379/0 --app shop:app --dry-run
      qbull drain bullmq --from redis://localhost:6379/0 --app shop:app --map welcome=greet
    """
    from qbull.drain.bullmq import BullmqOptions, BullmqSource

    advice = (
        "bullmq workers have started {count} jobs; stop the workers and let them finish. "
        "If the workers were killed, use --active"
    )
    chosen = BullmqOptions(
        prefix=key_prefix,
        zone=timezone,
        failed=not no_failed,
        **{name: options.pop(name) for name in ("active", "retry", "snake_case")},
    )
    return _DrainCommand(target, **options).run(
        DrainKind("bullmq", "" if chosen.active else advice),
        lambda server: BullmqSource(server, chosen),
        queues,
    )


def _message_format(command: F) -> F:
    """Add the options of messages that have a form of their own."""
    return _with_options(
        click.option("--task", metavar="NAME", help="Task of all messages."),
        click.option("--task-field", metavar="FIELD", help="Field that has the name of the task."),
        click.option(
            "--args-field",
            metavar="FIELD",
            help="Field that has the arguments, as JSON.  [default: all other fields]",
        ),
        click.option(
            "--id-field",
            metavar="FIELD",
            help="Field that has the id of the job.  [default: an id from its place]",
        ),
        _snake_case_option,
    )(command)


def _format(options: dict[str, Any]) -> Any:
    from qbull.drain.by_hand import MessageFormat

    fields = ("task", "task_field", "args_field", "id_field", "snake_case")
    return MessageFormat(**{name: options.pop(name) for name in fields})


@drain.command("stream")
@click.argument("streams", nargs=-1, required=True, metavar="NAME…")
@click.option(
    "--group",
    metavar="NAME",
    help="Consumer group whose entries to move. Omit it if the stream has no groups.",
)
@click.option(
    "--min-idle",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Move a pending entry only if its consumer has had it for so long.",
)
@_message_format
@_every_source
def drain_stream(
    target: Target, streams: tuple[str, ...], group: str | None, min_idle: float, **options: Any
) -> int:
    """Move the entries of streams: those that no consumer of a group has read, and those that are pending.

    A NAME may be a pattern such as 'WHATSAPP:*'. The entries of one stream are moved in their order. An entry
    that is moved is acknowledged, and deleted unless other groups read the stream too.

    \b
    Example:
      qbull drain stream 'WHATSAPP:*' --group workers --task handle_message --args-field data \\
        --from redis://localhost:6379/0 --app shop:app --dry-run
    """
    from qbull.drain.by_hand import StreamSource

    form = _format(options)
    advice = (
        "consumers have {count} pending entries; stop them, wait for --min-idle seconds, and run the "
        "drain again"
    )
    return _DrainCommand(target, **options).run(
        DrainKind("stream", advice),
        lambda server: StreamSource(
            server, form, streams, group=group, min_idle=min_idle, dry=options["dry_run"]
        ),
    )


@drain.command("list")
@click.argument("lists", nargs=-1, required=True, metavar="NAME…")
@click.option(
    "--pop",
    type=click.Choice(["right", "left"]),
    default="right",
    show_default=True,
    help="End at which consumers take messages: right for LPUSH and BRPOP, left for RPUSH and BLPOP.",
)
@click.option(
    "--processing",
    multiple=True,
    metavar="NAME",
    help="List of messages that consumers have taken and not finished; may be given several times. "
    "Stop the consumers first.",
)
@_message_format
@_every_source
def drain_list(
    target: Target, lists: tuple[str, ...], pop: Any, processing: tuple[str, ...], **options: Any
) -> int:
    """Move the messages of lists, oldest first.

    A NAME may be a pattern such as 'orders:*'. A message is JSON or text. An object has the arguments by
    name; anything else is the only argument.

    \b
    Example:
      qbull drain list orders:queue --processing orders:processing --task place_order \\
        --from redis://localhost:6379/0 --app shop:app --dry-run
    """
    from qbull.drain.by_hand import ListSource

    form = _format(options)
    return _DrainCommand(target, **options).run(
        DrainKind("list"), lambda server: ListSource(server, form, lists, pop=pop, processing=processing)
    )
