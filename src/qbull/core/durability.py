"""Durability: what a profile asks of a server, and what a server's facts allow. Pure; store/connection/facts.py finds the facts.

Each profile asks for all that the one before it asks for, and more:

    fast        the append-only file is on
    durable     each write is flushed to the disk before it is answered
    replicated  and every replica that could be promoted has it
    strict      and every one of them has flushed it to its own disk
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

Durability = Literal["fast", "durable", "replicated", "strict"]
PROFILES: tuple[Durability, ...] = get_args(Durability)

SET_IN_CONFIGURATION = "and set it in the server's configuration"


@dataclass(frozen=True)
class NodeFacts:
    """One server, as it tells of itself. None is what it does not tell."""

    shown: str
    aof: bool = True
    fsync: str | None = "always"
    skips_on_rewrite: bool | None = False
    failing: bool = False
    """Whether its last write to disk failed."""


@dataclass(frozen=True)
class ReplicationFacts:
    """A primary and its replicas: `followers` are well; `astray` says of each other one what is wrong with it."""

    primary: NodeFacts
    followers: tuple[NodeFacts, ...] = ()
    astray: tuple[str, ...] = ()
    expected: int | None = None
    """How many replicas it should have; None where nobody says."""
    links: frozenset[tuple[str, int]] = frozenset()
    """Who is connected to it like a replica, strangers included."""
    migrates: bool = False
    """Whether its cluster may give a replica to another primary by itself."""
    has_waitaof: bool = True


@dataclass(frozen=True)
class UnmetRequirement:
    """What a profile misses here, and what to do about it. One that is `passing` may go away by itself."""

    fact: str
    step: str
    passing: bool = False


def unmet_requirement(durability: Durability, facts: ReplicationFacts) -> UnmetRequirement | None:
    """The first thing that keeps these servers from holding a profile; None where they hold it."""
    for profile in PROFILES[: PROFILES.index(durability) + 1]:
        found = _REQUIREMENTS[profile](facts)
        if found is not None:
            return found
    return None


def highest_profile(facts: ReplicationFacts) -> tuple[Durability | None, UnmetRequirement | None]:
    """The profile that these servers hold, and what the next one misses."""
    held: Durability | None = None
    for profile in PROFILES:
        found = _REQUIREMENTS[profile](facts)
        if found is not None:
            return held, found
        held = profile
    return held, None


def _unmet_fast(facts: ReplicationFacts) -> UnmetRequirement | None:
    return _unmet_writes(facts.primary, "it has")


def _unmet_durable(facts: ReplicationFacts) -> UnmetRequirement | None:
    return _unmet_flushes(facts.primary, "it has")


def _unmet_replicated(facts: ReplicationFacts) -> UnmetRequirement | None:
    if facts.expected is None:
        return UnmetRequirement(
            f"nothing says how many replicas it should have; {len(facts.links)} connected now",
            "add ?replicas=N to its address",
        )
    if facts.expected == 0:
        return UnmetRequirement("it has no replica", "give it one", passing=True)
    present = min(len(facts.followers), len(facts.links))
    if facts.astray or present < facts.expected:
        why = f": {'; '.join(facts.astray)}" if facts.astray else ""
        return UnmetRequirement(
            f"{present} of {_count(facts.expected)} follow it{why}",
            "start what is down, and remove what will not come back from the cluster, the sentinels or the address",
            passing=True,
        )
    return None


def _unmet_strict(facts: ReplicationFacts) -> UnmetRequirement | None:
    if not facts.has_waitaof:
        return UnmetRequirement("it is too old for WAITAOF", "use Redis 7.2 or Valkey 7.2 and newer")
    for node in facts.followers:
        who = f"its replica {node.shown} has"
        found = _unmet_writes(node, who) or _unmet_flushes(node, who)
        if found is not None:
            return found
    if facts.migrates:
        return UnmetRequirement(
            "its cluster may give a replica to another primary by itself",
            f'run "CONFIG SET cluster-allow-replica-migration no" on every node {SET_IN_CONFIGURATION}',
        )
    return None


def _unmet_writes(node: NodeFacts, who: str) -> UnmetRequirement | None:
    if not node.aof:
        return UnmetRequirement(
            f"{who} no append-only file: a restart loses jobs",
            f'run "CONFIG SET appendonly yes" {SET_IN_CONFIGURATION}',
        )
    if node.failing:
        return UnmetRequirement(
            f"{who} failed to write to its disk", "look at that disk and at the server's log", passing=True
        )
    if node.fsync == "no":
        return UnmetRequirement(
            f"{who} appendfsync no: a power cut can lose half a minute of jobs",
            f'run "CONFIG SET appendfsync always" (or everysec, for "fast") {SET_IN_CONFIGURATION}',
        )
    return None


def _unmet_flushes(node: NodeFacts, who: str) -> UnmetRequirement | None:
    if node.fsync is None or node.skips_on_rewrite is None:
        return UnmetRequirement(
            f"{who} settings that this user may not read",
            "give the user the right +config|get; a hosted server that never tells them cannot be checked",
        )
    if node.fsync != "always":
        return UnmetRequirement(
            f"{who} appendfsync {node.fsync}: a power cut can lose the last two seconds of jobs",
            f'run "CONFIG SET appendfsync always" {SET_IN_CONFIGURATION}',
        )
    if node.skips_on_rewrite:
        return UnmetRequirement(
            f"{who} no-appendfsync-on-rewrite yes: while the file is rewritten nothing is flushed",
            f'run "CONFIG SET no-appendfsync-on-rewrite no" {SET_IN_CONFIGURATION}',
        )
    return None


def _count(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


_REQUIREMENTS: dict[Durability, Callable[[ReplicationFacts], UnmetRequirement | None]] = {
    "fast": _unmet_fast,
    "durable": _unmet_durable,
    "replicated": _unmet_replicated,
    "strict": _unmet_strict,
}
