"""`qbull audit`: read, search, export and check the audit log."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from qbull.cli.duration import read_past_moment
from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import ago, print_json, print_table
from qbull.core.record import to_datetime
from qbull.store.verbs import audit_log
from qbull.store.verbs.audit_log import AuditLogRecord, AuditSearch
from qbull.views.access import AuditChainView, AuditEntryView
from qbull.views.shape import to_plain

AUDIT_COLUMNS = ("when", "who", "how", "action", "*target", "status", "from", "why")


@click.command()
@click.option("--search", "text", metavar="TEXT", help="Only entries with this text anywhere.")
@click.option("--who", help="Only entries of this author.")
@click.option("--action", help='Only entries of this action, such as "pause queue".')
@click.option("--target", "part", metavar="TEXT", help="Only entries with this text in their target.")
@click.option(
    "--since", metavar="TIME", callback=read_past_moment, help="Only later ones, such as yesterday."
)
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of entries."
)
@click.option("--export", is_flag=True, help="Print all of them as JSON lines; --limit does not count.")
@click.option("--verify", is_flag=True, help="Check that no entry was removed or changed.")
@click.option(
    "--expect",
    metavar="NUMBER:HASH",
    multiple=True,
    help="With --verify: an entry that was the last one at an earlier check; repeatable.",
)
@on_target
@as_json
@click.pass_context
def audit(
    ctx: click.Context,
    /,
    target: Target,
    limit: int,
    export: bool,
    verify: bool,
    expect: tuple[str, ...],
    as_json: bool,
    **wanted: Any,
) -> None:
    """Show who changed what, the newest first.

    \b
    Example:
      qbull audit --search billing --since yesterday
      qbull audit --export > audit.jsonl
      qbull audit --verify

    With --json: a list of {"id", "at", "who", "role", "how", "action", "target", "status", "detail",
    "address", "count", "reason", "stream", "number", "hash"}. With --verify, it prints the number and the
    hash of the last entries; the exit code is 1 if entries were removed or changed.
    """
    if verify:
        ctx.exit(0 if target.run(lambda: _verify(target, expect, as_json)) else 1)
    since = wanted.pop("since")
    search = AuditSearch(
        wanted["who"],
        wanted["action"],
        wanted["part"],
        wanted["text"],
        int(since.timestamp() * 1000) if since is not None else 0,
    )

    async def main() -> None:
        await target.store.open()
        if export:
            async for record in audit_log.found(target.store, search):
                click.echo(msgspec.json.encode(_view(record)))
            return
        found = await audit_log.search(target.store, limit, search)
        if as_json:
            print_json([_view(record) for record in found])
        elif found:
            print_table(AUDIT_COLUMNS, [_row(record) for record in found])
        else:
            click.echo("no entries", err=True)

    target.run(main)


async def _verify(target: Target, expect: tuple[str, ...], as_json: bool) -> bool:
    await target.store.open()
    known = {f"{record.number}:{record.hash}" async for record in audit_log.read_all(target.store)}
    missing = [one for one in expect if one not in known]
    checked = [
        AuditChainView.of(stream, await audit_log.verify(target.store, stream))
        for stream in audit_log.MAX_AUDIT_ENTRIES
    ]
    complete = not missing and not any(one.faults for one in checked)
    if as_json:
        streams = [to_plain(one) for one in checked]
        print_json({"complete": complete, "missing": missing, "streams": streams})
        return complete
    for one in checked:
        if one.entries or one.faults:
            click.echo(f"{one.stream}: {one.entries} entries, the last is {one.last}")
        for fault in one.faults:
            click.echo(f"{one.stream}: {fault}", err=True)
    for entry in missing:
        click.echo(f"the entry {entry} is not in the log; it was removed, changed, or is too old", err=True)
    click.echo("complete" if complete else "not complete")
    return complete


def _view(record: AuditLogRecord) -> Any:
    return to_plain(AuditEntryView.of(record))


def _row(record: AuditLogRecord) -> list[object]:
    entry = record.entry
    action = entry.action if entry.count == 1 else f"{entry.action} x{entry.count}"
    status = entry.status if entry.status >= 300 else "ok"
    when = ago(to_datetime(record.at_ms))
    return [when, entry.who, entry.how, action, entry.target, status, entry.address, entry.reason]
