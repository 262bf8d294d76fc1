"""Which worker reads which partition: a pure function of the live workers and their partitions, so all agree.

Shares are even, and as few partitions move as possible: a worker keeps its partitions up to its share, and
free partitions go to the workers below their share, by rendezvous hashing. The function is idempotent.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, assert_never, get_args

import msgspec
from msgspec.structs import replace

from qbull.core.digits import whole_number
from qbull.errors import ConfigError, quoted_choices

SharingMode = Literal["auto", "leased", "static"]
"""How workers share partitions: by an even split that all compute alike, by leases, or by instance number."""
SHARING_MODES: tuple[SharingMode, ...] = get_args(SharingMode)
TAKE_OVER_NAMES = "--take-over (QBULL_TAKE_OVER)"


class Sharing(msgspec.Struct, frozen=True):
    """How a worker gets the partitions that it reads. A pod is one `qbull worker` with its processes.

    Args:
        mode: how the workers share the partitions.
        most: the most partitions of a queue that this process takes; None for any number.
        instance: the number of this pod, from 0; for "static".
        instances: the number of pods; for "static".
        process: the number of this process in its pod, from 0.
        processes: the number of processes in the pod.
        pod: the pod's name.
        take_over: seconds after which others read the partitions of an instance that is gone; for "static".
            None if nobody does.
    """

    mode: SharingMode = "auto"
    most: int | None = None
    instance: int = 0
    instances: int = 1
    process: int = 0
    processes: int = 1
    pod: str = ""
    take_over: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.instance < self.instances:
            raise ConfigError(
                f"INSTANCE_ID={self.instance} with INSTANCE_COUNT={self.instances}: "
                f"ids go from 0 to {self.instances - 1}"
            )

    @property
    def instance_numbers(self) -> tuple[int | None, int | None]:
        """The number of this pod and the number of pods; None if the sharing does not depend on them."""
        return (self.instance, self.instances) if self.mode == "static" else (None, None)

    def of_process(self, process: int, processes: int, pod: str) -> Sharing:
        """The sharing of one process of a pod: the processes split what the pod may take."""
        most = self.most
        if most is not None:
            most = most // processes + (process < most % processes)
        return replace(self, most=most, process=process, processes=processes, pod=pod)


def make_sharing(
    mode: str | None,
    per_pod: int | None,
    instance: str | None,
    instances: int | None,
    take_over: float | None = None,
) -> Sharing:
    """Make the sharing that the environment or the command line asks for.

    Args:
        mode: one of SHARING_MODES; by default "static" if `instances` is given, otherwise "auto".
        per_pod: the most partitions of a queue that a pod takes.
        instance: the number of this pod; a name such as "worker-3" counts as 3.
        instances: the number of pods.
        take_over: seconds after which others read the partitions of a pod that is gone.
    """
    chosen = _chosen_mode(mode, instances)
    if take_over is not None and chosen != "static":
        raise ConfigError(
            f'{TAKE_OVER_NAMES} is for sharing "static": '
            f'with "{chosen}" others read the partitions of a worker that is gone anyway'
        )
    match chosen:
        case "auto" | "leased":
            if instances is not None:
                raise ConfigError(
                    f'sharing "{chosen}" and INSTANCE_COUNT={instances}: choose one; '
                    'an instance count means "static"'
                )
            if instance is not None:
                raise ConfigError(
                    f'INSTANCE_ID="{_printable(instance)}" needs INSTANCE_COUNT: '
                    "how many instances there are in all"
                )
            return Sharing(chosen, per_pod)
        case "static":
            return replace(_static_sharing(per_pod, instance, instances), take_over=take_over)
        case _:
            assert_never(chosen)


def _chosen_mode(mode: str | None, instances: int | None) -> SharingMode:
    if mode is None:
        return "auto" if instances is None else "static"
    for known in SHARING_MODES:
        if mode == known:
            return known
    raise ConfigError(f'QBULL_SHARING="{_printable(mode)}": use {quoted_choices(SHARING_MODES)}')


def _static_sharing(per_pod: int | None, instance: str | None, instances: int | None) -> Sharing:
    if instances is None:
        given = 'sharing "static"' if instance is None else f'INSTANCE_ID="{_printable(instance)}"'
        raise ConfigError(f"{given} needs INSTANCE_COUNT: how many instances there are in all")
    if per_pod is not None:
        raise ConfigError(
            f"PARTITIONS_PER_POD={per_pod} and INSTANCE_COUNT={instances}: "
            "choose one; the count decides how many a pod has"
        )
    if instance is None:
        raise ConfigError(f"INSTANCE_COUNT={instances} needs INSTANCE_ID: which of them this is, from 0")
    digits = re.search(r"[0-9]+$", instance)
    number = whole_number(digits.group()) if digits is not None else None
    if number is None:
        raise ConfigError(
            f'INSTANCE_ID="{_printable(instance)}": give a number, '
            "or a name that ends in one such as worker-3"
        )
    return Sharing("static", None, number, instances)


def _printable(text: str) -> str:
    """On one line, with a question mark for each character that cannot be printed."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


class ShareMember(msgspec.Struct, frozen=True):
    """A worker that takes part: the partitions that it reads, and the most it takes (None: any number)."""

    held: frozenset[int] = frozenset()
    most: int | None = None


def assign_partitions(partitions: int, readers: Mapping[str, ShareMember]) -> dict[str, list[int]]:
    """The partitions that each of them should read.

    With more readers than partitions, each of the others joins the partition that has the fewest readers:
    lanes keep the order with any number of readers.
    """
    sizes = _sizes(partitions, readers)
    shares: dict[str, set[int]] = {name: set() for name in readers}
    free = []
    for partition in range(partitions):
        holders = [name for name, reader in readers.items() if partition in reader.held]
        for name in _ranked(partition, holders):
            if len(shares[name]) < sizes[name]:
                shares[name].add(partition)
                break
        else:
            free.append(partition)
    for partition in free:
        for name in _ranked(partition, readers):
            if len(shares[name]) < sizes[name]:
                shares[name].add(partition)
                break
    _share_leftovers(partitions, readers, shares)
    return {name: sorted(share) for name, share in shares.items()}


def static_partitions(
    partitions: int, instance: int, instances: int, process: int, processes: int
) -> list[int]:
    """`partition % instances == instance`, dealt out to the processes of the instance.

    If an instance has more processes than partitions, several processes read the same partition.
    """
    mine = [p for p in range(partitions) if p % instances == instance]
    if len(mine) >= processes or not mine:
        return mine[process::processes]
    return [mine[process % len(mine)]]


def covered_partitions(
    partitions: int, instances: int, missing: Iterable[int], readers: Iterable[str]
) -> dict[str, list[int]]:
    """The partitions of missing instances, by the reader that covers them meanwhile.

    Each partition goes to one reader, by rendezvous hashing: if a reader joins or leaves, only its own move.
    """
    names, gone = sorted(readers), set(missing)
    shares: dict[str, list[int]] = {name: [] for name in names}
    for partition in range(partitions):
        if names and partition % instances in gone:
            shares[_ranked(partition, names)[0]].append(partition)
    return shares


def unassigned_partitions(partitions: int, shares: Iterable[Iterable[int]]) -> list[int]:
    """The partitions that nobody reads."""
    return sorted(set(range(partitions)).difference(*shares))


def _sizes(partitions: int, readers: Mapping[str, ShareMember]) -> dict[str, int]:
    """The size of each share: one more for the smallest, until all are given or nobody takes more.

    It does not depend on what they hold, so the result is the same before and during a change.
    """
    sizes = dict.fromkeys(readers, 0)
    line = [(0, name) for name, reader in readers.items() if reader.most != 0]
    heapq.heapify(line)
    for _ in range(partitions):
        if not line:
            break
        size, name = heapq.heappop(line)
        sizes[name] = size + 1
        most = readers[name].most
        if most is None or size + 1 < most:
            heapq.heappush(line, (size + 1, name))
    return sizes


def _share_leftovers(
    partitions: int, readers: Mapping[str, ShareMember], shares: dict[str, set[int]]
) -> None:
    idle = sorted(name for name, reader in readers.items() if not shares[name] and reader.most != 0)
    count = [sum(partition in share for share in shares.values()) for partition in range(partitions)]
    for name in idle:
        held = readers[name].held
        chosen = min(range(partitions), key=lambda p: (count[p], p not in held, _weight(p, name)))
        shares[name].add(chosen)
        count[chosen] += 1


def _ranked(partition: int, names: Iterable[str]) -> Sequence[str]:
    return sorted(names, key=lambda name: _weight(partition, name))


def _weight(partition: int, name: str) -> bytes:
    return hashlib.sha256(f"{partition}:{name}".encode()).digest()
