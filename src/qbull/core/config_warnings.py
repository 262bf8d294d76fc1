"""Config warnings: workers of a queue whose settings do not fit together, so that partitions go unread.

A pure function of the settings that the live workers report. Workers log the warnings; `qbull doctor` and
`qbull partitions` show them. No job is in danger: lanes and fences hold with any number of readers. But the
jobs of a partition that nobody reads wait for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil, inf
from typing import Literal

import msgspec

from qbull.core.sharing import unassigned_partitions

ConfigWarningKind = Literal["unread", "same-id", "counts-differ", "modes-differ", "settings-differ", "idle"]

SERIOUS_WARNINGS: frozenset[ConfigWarningKind] = frozenset({"unread", "same-id"})
"""Warnings about jobs that wait for ever, or will. Others appear for a while in every rolling restart."""


class WorkerDeclaration(msgspec.Struct, frozen=True):
    """One live worker process, as it describes itself for one queue.

    A pod is one `qbull worker` and its processes.
    """

    worker: str
    pod: str
    sharing: str = "auto"
    partitions: frozenset[int] = frozenset()
    most: int | None = None
    instance: int | None = None
    instances: int | None = None
    settings: str = ""
    """A digest of the settings in the worker's code; empty if it reports none."""


class ConfigWarning(msgspec.Struct, frozen=True):
    kind: ConfigWarningKind
    fact: str
    next_step: str
    partitions: tuple[int, ...]
    workers: tuple[str, ...]

    @property
    def serious(self) -> bool:
        return self.kind in SERIOUS_WARNINGS

    @property
    def line(self) -> str:
        return f"{self.fact}; {self.next_step}"


def config_warnings(
    partitions: int, settings: str, seats: Sequence[WorkerDeclaration]
) -> list[ConfigWarning]:
    """The warnings for these workers, the worst first. `settings` is the digest of the server's settings."""
    if not seats:
        return []
    return [
        *_unread(partitions, seats),
        *_same_id(partitions, seats),
        *_counts_differ(seats),
        *_modes_differ(seats),
        *_settings_differ(settings, seats),
        *_idle(partitions, seats),
    ]


def spell_ranges(numbers: Iterable[int]) -> str:
    """ "0 to 3, 7, 9 to 12"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run]
    return ", ".join(parts)


def _unread(partitions: int, seats: Sequence[WorkerDeclaration]) -> list[ConfigWarning]:
    unread = unassigned_partitions(partitions, (seat.partitions for seat in seats))
    taking = [seat for seat in seats if seat.sharing != "static"]
    spare = sum(inf if seat.most is None else max(seat.most - len(seat.partitions), 0) for seat in taking)
    if not unread or spare >= len(unread):  # They are about to get a reader.
        return []
    reason, next_step = _why_unread(partitions, unread, seats)
    some = f"partition{'s' * (len(unread) > 1)} {spell_ranges(unread)}"
    return [ConfigWarning("unread", f"no worker reads {some}: {reason}", next_step, tuple(unread), ())]


def _why_unread(
    partitions: int, unread: Sequence[int], seats: Sequence[WorkerDeclaration]
) -> tuple[str, str]:
    capped = [seat for seat in seats if seat.sharing != "static"]
    if capped:
        pods = len({seat.pod for seat in capped})
        room = sum(seat.most or 0 for seat in capped)
        more = ceil(len(unread) / max(room // pods, 1))
        return (
            (
                f"{_count(pods, 'pod')} {'takes' if pods == 1 else 'take'} up to {room} of {partitions} "
                "(PARTITIONS_PER_POD)"
            ),
            f"start {more} more, or set PARTITIONS_PER_POD to {ceil(partitions / pods)}",
        )
    counts = {seat.instances or 1 for seat in seats}
    if len(counts) > 1:
        return (
            "the workers have different INSTANCE_COUNTs",
            "give all of them the same, and start each id from 0 up to it",
        )
    [count] = counts
    ids = sorted({number % count for number in unread})
    verb = "is" if len(ids) == 1 else "are"
    return (
        f"of INSTANCE_COUNT={count}, INSTANCE_ID {spell_ranges(ids)} {verb} not running",
        f"start {'it' if len(ids) == 1 else 'them'}, or lower the count everywhere",
    )


def _same_id(partitions: int, seats: Sequence[WorkerDeclaration]) -> list[ConfigWarning]:
    pods: dict[tuple[int, int], set[str]] = defaultdict(set)
    for seat in seats:
        if seat.sharing == "static" and seat.instance is not None and seat.instances is not None:
            pods[seat.instances, seat.instance].add(seat.pod)
    return [
        ConfigWarning(
            "same-id",
            f"INSTANCE_ID={instance} of {count} is used by {len(same)} workers: {', '.join(sorted(same))}",
            f"give each its own, from 0 to {count - 1}; "
            "a worker that died is forgotten after MIN_IDLE_TIME_MS",
            tuple(range(instance, partitions, count)),
            _workers(seats, same),
        )
        for (count, instance), same in sorted(pods.items())
        if len(same) > 1
    ]


def _counts_differ(seats: Sequence[WorkerDeclaration]) -> list[ConfigWarning]:
    static = [seat for seat in seats if seat.sharing == "static"]
    return _differ(
        "counts-differ",
        "INSTANCE_COUNT is not the same everywhere: {}",
        "give all workers the same; in a rolling restart wait for its end",
        {seat.worker: str(seat.instances) for seat in static},
        static,
    )


def _modes_differ(seats: Sequence[WorkerDeclaration]) -> list[ConfigWarning]:
    return _differ(
        "modes-differ",
        "workers share its partitions in different ways: {}",
        "choose one of auto, leased and static for all; in a rolling restart wait for its end",
        {seat.worker: seat.sharing for seat in seats},
        seats,
    )


def _differ(
    kind: ConfigWarningKind,
    fact: str,
    next_step: str,
    said: dict[str, str],
    seats: Sequence[WorkerDeclaration],
) -> list[ConfigWarning]:
    """The workers disagree. The warning names those in the minority."""
    pods: dict[str, set[str]] = defaultdict(set)
    for seat in seats:
        pods[said[seat.worker]].add(seat.pod)
    if len(pods) < 2:
        return []
    ranked = sorted(pods.items(), key=lambda item: (-len(item[1]), item[0]))
    usual = f"{ranked[0][0]} in {len(ranked[0][1])}"
    others = [f"{what} in {', '.join(sorted(who))}" for what, who in ranked[1:]]
    concerned = _workers(seats, {pod for _, who in ranked[1:] for pod in who})
    return [ConfigWarning(kind, fact.format("; ".join([usual, *others])), next_step, (), concerned)]


def _settings_differ(settings: str, seats: Sequence[WorkerDeclaration]) -> list[ConfigWarning]:
    others = {seat.pod for seat in seats if seat.settings and settings and seat.settings != settings}
    if not others:
        return []
    was = "was" if len(others) == 1 else "were"
    return [
        ConfigWarning(
            "settings-differ",
            f"{', '.join(sorted(others))} {was} started with other settings than the queue has now",
            "restart it with the same code as the others"
            if len(others) == 1
            else "restart them with the same code as the others",
            (),
            _workers(seats, others),
        )
    ]


def _idle(partitions: int, seats: Sequence[WorkerDeclaration]) -> list[ConfigWarning]:
    """Workers that can never get a partition."""
    capped = [seat for seat in seats if seat.sharing != "static" and seat.most == 0]
    beyond = [seat for seat in seats if seat.sharing == "static" and (seat.instance or 0) >= partitions]
    found = []
    if capped:
        found.append(
            ConfigWarning(
                "idle",
                f"{_count(len(capped), 'worker process', 'worker processes')} may read nothing: "
                "PARTITIONS_PER_POD is less than --processes in "
                f"{', '.join(sorted({seat.pod for seat in capped}))}",
                "lower --processes or raise PARTITIONS_PER_POD",
                (),
                tuple(sorted(seat.worker for seat in capped)),
            )
        )
    if beyond:
        ids = spell_ranges(seat.instance or 0 for seat in beyond)
        found.append(
            ConfigWarning(
                "idle",
                f"INSTANCE_ID {ids} of {beyond[0].instances} {'has' if len(beyond) == 1 else 'have'} "
                f"nothing to read: there {'is' if partitions == 1 else 'are'} "
                f"{_count(partitions, 'partition')}",
                f"start no more than {partitions}, or give the queue more partitions",
                (),
                tuple(sorted(seat.worker for seat in beyond)),
            )
        )
    return found


def _workers(seats: Sequence[WorkerDeclaration], pods: set[str]) -> tuple[str, ...]:
    return tuple(sorted(seat.worker for seat in seats if seat.pod in pods))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
