"""`qbull partitions`: which worker reads which partition of a queue, and how many jobs wait there."""

from __future__ import annotations

import click

from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import ago, print_json, print_table
from qbull.core.record import to_datetime
from qbull.observe.log import one_line
from qbull.store.read.partition_report import PartitionStatus, partition_report
from qbull.views.partitions import PartitionReportShape
from qbull.views.shape import to_plain

PARTITION_COLUMNS = (
    ">partition",
    ">waiting",
    ">behind others",
    ">active",
    ">delayed",
    ">failed",
    "oldest waiting",
    "read since",
    "*read by",
)
LONG_LANE_COLUMNS = ("longest lanes: key", ">partition", ">behind others", "oldest")
HALTED_LANE_COLUMNS = ("halted lanes: key", ">partition", ">behind it", "since", "*dead letter")


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@on_target
@as_json
def partitions(target: Target, queue_name: str, as_json: bool) -> None:
    """Show a queue's partitions, their readers and counts.

    \b
    Example:
      qbull partitions messages
      qbull partitions messages --json | jq '.warnings[].fact'

    Warnings about partitions without a reader and about workers with conflicting settings follow the tables.
    With --json: {"queue", "partitions": [{"partition", "draining", "readers", "lease", "waiting", "inLanes",
    "active", "delayed", "failed", "oldestWaitingAt"}], "longLanes", "haltedLanes", "warnings"}.
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        report = await partition_report(target.store, await target.store.settings(queue.name))
        if as_json:
            print_json(to_plain(PartitionReportShape.of(report)))
            return
        print_table(PARTITION_COLUMNS, [_row(partition) for partition in report.partitions])
        if report.hot:
            rows = [
                [_key(lane.key), lane.partition, lane.waiting, _ago(lane.oldest_ms)] for lane in report.hot
            ]
            print_table(LONG_LANE_COLUMNS, rows)
        if report.halted:
            halted: list[list[object]] = [
                [_key(lane.key), lane.partition, lane.waiting, _ago(lane.since_ms), lane.job]
                for lane in report.halted
            ]
            print_table(HALTED_LANE_COLUMNS, halted)
        for warning in report.warnings:
            click.echo(one_line(warning.line), err=True)
        if not any(partition.readers for partition in report.partitions):
            click.echo(
                f'no worker serves it; run "qbull worker MODULE:APP --queues {queue.name}"',
                err=True,
            )

    target.run(main)


def _row(partition: PartitionStatus) -> list[object]:
    counts = partition.counts
    since = [reader.since_ms for reader in partition.readers if reader.since_ms is not None]
    readers = ", ".join(reader.worker for reader in partition.readers)
    if partition.lease is not None:
        readers += f" (lease {partition.lease.epoch})"
    return [
        f"{partition.number} (draining)" if partition.draining else partition.number,
        counts.waiting,
        counts.in_lanes,
        counts.active,
        counts.delayed,
        counts.failed,
        _ago(counts.oldest_waiting_ms),
        _ago(min(since, default=None)),
        readers or None,
    ]


def _key(key: str | None) -> str:
    return "(whole partition)" if key is None else key


def _ago(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else ago(to_datetime(milliseconds))
