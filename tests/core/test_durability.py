"""Which profile a server holds: each asks for all that the one before asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.durability import PROFILES, NodeFacts, ReplicationFacts, highest_profile, unmet_requirement

HERE, THERE = NodeFacts("here"), NodeFacts("there")
LINKS = frozenset({("there", 6379)})
BEST = ReplicationFacts(HERE, (THERE,), expected=1, links=LINKS)

nodes = st.builds(
    NodeFacts,
    st.just("node"),
    aof=st.booleans(),
    fsync=st.sampled_from(["always", "everysec", "no", None]),
    skips_on_rewrite=st.sampled_from([True, False, None]),
    failing=st.booleans(),
)
facts = st.builds(
    ReplicationFacts,
    nodes,
    followers=st.lists(nodes, max_size=2).map(tuple),
    astray=st.lists(st.just("lost"), max_size=2).map(tuple),
    expected=st.sampled_from([None, 0, 1, 2]),
    links=st.frozensets(st.sampled_from([("a", 1), ("b", 2), ("c", 3)])),
    migrates=st.booleans(),
    has_waitaof=st.booleans(),
)


@given(facts)
def test_what_holds_is_one_line_of_profiles_without_gaps(facts: ReplicationFacts) -> None:
    holds = [unmet_requirement(profile, facts) is None for profile in PROFILES]

    assert holds == sorted(holds, reverse=True)
    held, missed = highest_profile(facts)
    assert held == (PROFILES[sum(holds) - 1] if any(holds) else None)
    assert (missed is None) == (held == "strict")


@given(facts)
def test_no_profile_with_replicas_holds_while_one_is_missing(facts: ReplicationFacts) -> None:
    well = min(len(facts.followers), len(facts.links))
    if facts.astray or not facts.expected or well < facts.expected:
        assert unmet_requirement("replicated", facts) is not None


@given(facts)
def test_a_lack_is_one_line_with_a_next_step(facts: ReplicationFacts) -> None:
    for profile in PROFILES:
        found = unmet_requirement(profile, facts)
        assert found is None or (found.fact and found.step and "\n" not in found.fact + found.step)


@pytest.mark.parametrize(
    ("change", "held", "fact"),
    [
        ({}, "strict", None),
        ({"primary": replace(HERE, aof=False)}, None, "no append-only file"),
        ({"primary": replace(HERE, fsync="no")}, None, "appendfsync no"),
        ({"primary": replace(HERE, failing=True)}, None, "failed to write"),
        ({"primary": replace(HERE, fsync="everysec")}, "fast", "appendfsync everysec"),
        ({"primary": replace(HERE, fsync=None)}, "fast", "may not read"),
        ({"primary": replace(HERE, skips_on_rewrite=True)}, "fast", "no-appendfsync-on-rewrite yes"),
        ({"expected": None}, "durable", "nothing says how many replicas"),
        ({"expected": 0}, "durable", "it has no replica"),
        ({"expected": 2}, "durable", "1 of 2 replicas follow it"),
        (
            {"followers": (), "astray": ("there:1 does not answer",)},
            "durable",
            "0 of 1 replica follow it: there:1 does not",
        ),
        ({"links": frozenset()}, "durable", "0 of 1 replica follow it"),
        (
            {"followers": (replace(THERE, aof=False),)},
            "replicated",
            "its replica there has no append-only file",
        ),
        (
            {"followers": (replace(THERE, fsync="everysec"),)},
            "replicated",
            "its replica there has appendfsync everysec",
        ),
        ({"has_waitaof": False}, "replicated", "too old for WAITAOF"),
        ({"migrates": True}, "replicated", "may give a replica to another primary"),
    ],
)
def test_what_each_profile_asks_for(change: dict[str, Any], held: str | None, fact: str | None) -> None:
    found, missed = highest_profile(replace(BEST, **change))

    assert found == held
    assert (missed is None) if fact is None else (missed is not None and fact in missed.fact)
