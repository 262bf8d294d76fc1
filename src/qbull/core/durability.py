"""Durability profiles: who has a job when its enqueue is acknowledged, and which servers can promise that.

Every profile is one `DurabilityProfile`. To add one, add its name to `Durability`, behind the profiles that
are weaker, and its object to `profile_of`; everything else asks the object. Pure: store/connection/facts.py
finds the facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, assert_never, get_args

import msgspec

Durability = Literal["fast", "durable", "replicated", "strict"]
"""The profiles by name, the weakest first. Each requires all that the one before it requires, and more."""
DURABILITIES: tuple[Durability, ...] = get_args(Durability)

ReplicaCopy = Literal["none", "memory", "disk"]
"""The copy that a replica must confirm before an enqueue is acknowledged."""

SET_IN_CONFIGURATION = "and set it in the server's configuration"


class NodeFacts(msgspec.Struct, frozen=True):
    """One server, as it describes itself. None stands for a setting that it does not reveal."""

    shown: str
    aof: bool = True
    fsync: str | None = "always"
    skips_on_rewrite: bool | None = False
    failing: bool = False
    """Whether its last write to disk failed."""


class ReplicationFacts(msgspec.Struct, frozen=True):
    """A primary, its healthy replicas (`followers`), and one message for each unhealthy replica."""

    primary: NodeFacts
    followers: tuple[NodeFacts, ...] = ()
    unhealthy: tuple[str, ...] = ()
    expected: int | None = None
    """How many replicas it should have; None if that is unknown."""
    links: frozenset[tuple[str, int]] = frozenset()
    """Every client that is connected as a replica, tools included."""
    migrates: bool = False
    """Whether its cluster may give a replica to another primary by itself."""
    has_waitaof: bool = True


class UnmetRequirement(msgspec.Struct, frozen=True):
    """The fact that keeps servers from holding a profile, and its remedy.

    `transient`: it may pass by itself. `is_outage`: a known replica is down or changes sides, which says
    nothing against the configuration.
    """

    fact: str
    remedy: str
    transient: bool = False
    is_outage: bool = False


class DurabilityProfile(msgspec.Struct, frozen=True):
    """All that qbull knows about one durability profile."""

    name: Durability
    meaning: str
    """The promise of an acknowledgement, for `qbull doctor`."""
    flushes_own_disk: bool
    """Whether the primary flushes a job to its disk before it answers."""
    replica_copy: ReplicaCopy
    """The copy that replicas confirm."""
    confirmations: Callable[[int], int]
    """How many of so many replicas must confirm."""
    unmet: Callable[[ReplicationFacts], UnmetRequirement | None]
    """The first requirement, beyond those of the weaker profiles, that these servers do not meet."""

    @property
    def waits_for_replicas(self) -> bool:
        return self.replica_copy != "none"

    @property
    def confirms_order(self) -> bool:
        """Whether the next job of a lane waits until the outcome of the one before it is as safe as this."""
        return self.flushes_own_disk

    def commands(self, *, cluster: bool) -> tuple[str, ...]:
        """The commands that a Redis user needs besides those of its role."""
        topology = ("cluster|nodes",) if cluster else ()
        match self.replica_copy:
            case "none":
                return ("config|get",)
            case "memory":
                return ("config|get", "role", "set", "wait", *topology)
            case "disk":
                return ("config|get", "role", "set", "waitaof", *topology)
            case _:
                assert_never(self.replica_copy)


def profile_of(name: Durability) -> DurabilityProfile:
    """The profile with this name."""
    match name:
        case "fast":
            return _FAST
        case "durable":
            return _DURABLE
        case "replicated":
            return _REPLICATED
        case "strict":
            return _STRICT
        case _:
            assert_never(name)


def unmet_requirement(durability: Durability, facts: ReplicationFacts) -> UnmetRequirement | None:
    """The first requirement of a profile that these servers do not meet; None if they hold the profile."""
    for name in DURABILITIES[: DURABILITIES.index(durability) + 1]:
        unmet = profile_of(name).unmet(facts)
        if unmet is not None:
            return unmet
    return None


def highest_profile(
    facts: ReplicationFacts,
) -> tuple[DurabilityProfile | None, tuple[DurabilityProfile, UnmetRequirement] | None]:
    """The strongest profile that these servers hold; and the next one, with its unmet requirement."""
    held: DurabilityProfile | None = None
    for name in DURABILITIES:
        profile = profile_of(name)
        unmet = profile.unmet(facts)
        if unmet is not None:
            return held, (profile, unmet)
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
        return UnmetRequirement("it has no replica", "give it one", transient=True)
    present = min(len(facts.followers), len(facts.links))
    if facts.unhealthy or present < facts.expected:
        why = f": {'; '.join(facts.unhealthy)}" if facts.unhealthy else ""
        return UnmetRequirement(
            f"{present} of {_count(facts.expected)} follow it{why}",
            "start the replicas that are down; remove those that will not come back from the cluster, "
            "the sentinels or the address",
            transient=True,
            is_outage=bool(facts.unhealthy),
        )
    return None


def _unmet_strict(facts: ReplicationFacts) -> UnmetRequirement | None:
    if not facts.has_waitaof:
        return UnmetRequirement("it is too old for WAITAOF", "use Redis 7.2 or Valkey 7.2 and newer")
    for node in facts.followers:
        who = f"its replica {node.shown} has"
        unmet = _unmet_writes(node, who) or _unmet_flushes(node, who)
        if unmet is not None:
            return unmet
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
            f"{who} failed to write to its disk", "look at that disk and at the server's log", transient=True
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


def _none(replicas: int) -> int:
    return 0


def _all(replicas: int) -> int:
    return replicas


_FAST = DurabilityProfile(
    "fast",
    meaning="a power cut can lose the last two seconds of acknowledged jobs",
    flushes_own_disk=False,
    replica_copy="none",
    confirmations=_none,
    unmet=_unmet_fast,
)
_DURABLE = DurabilityProfile(
    "durable",
    meaning="an acknowledged job is on the server's disk",
    flushes_own_disk=True,
    replica_copy="none",
    confirmations=_none,
    unmet=_unmet_durable,
)
_REPLICATED = DurabilityProfile(
    "replicated",
    meaning="an acknowledged job is on the server's disk and on every replica, if the enqueue asks for it",
    flushes_own_disk=True,
    replica_copy="memory",
    confirmations=_all,
    unmet=_unmet_replicated,
)
_STRICT = DurabilityProfile(
    "strict",
    meaning="an acknowledged job is on the disks of the server and every replica, if the enqueue asks for it",
    flushes_own_disk=True,
    replica_copy="disk",
    confirmations=_all,
    unmet=_unmet_strict,
)
