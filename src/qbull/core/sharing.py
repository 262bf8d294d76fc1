"""Who reads which partition: a pure function of who is there and what they hold, so that all who compute it agree.

Shares are even, and nothing moves that need not: a worker keeps what it holds up to its share, and what is free goes
to those below theirs, by rendezvous hashing. Computed again on its own outcome it changes nothing.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ShareMember:
    """A worker that takes part: what it reads now, and the most it takes (None: any number)."""

    held: frozenset[int] = frozenset()
    most: int | None = None


def assign_partitions(partitions: int, readers: Mapping[str, ShareMember]) -> dict[str, list[int]]:
    """The partitions that each of them should read.

    With more readers than partitions the others help: each joins the partition that has the fewest, because lanes
    keep the order with any number of them.
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

    Where an instance has more processes than partitions, several of them read the same one.
    """
    mine = [p for p in range(partitions) if p % instances == instance]
    if len(mine) >= processes or not mine:
        return mine[process::processes]
    return [mine[process % len(mine)]]


def unassigned_partitions(partitions: int, shares: Iterable[Iterable[int]]) -> list[int]:
    """The partitions that nobody reads."""
    return sorted(set(range(partitions)).difference(*shares))


def _sizes(partitions: int, readers: Mapping[str, ShareMember]) -> dict[str, int]:
    """How many each gets: one more for whoever has the fewest, until all are given or nobody takes more.

    What they hold does not matter: who looks in the middle of a change computes the same as who looked before it.
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
