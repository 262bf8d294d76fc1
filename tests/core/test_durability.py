"""Which profile a server holds: each asks for all that the one before asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from qbull.core.durability import (
    DURABILITIES,
    Durability,
    NodeFacts,
    ReplicationFacts,
    highest_profile,
    profile_of,
    unmet_requirement,
)

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
    unhealthy=st.lists(st.just("lost"), max_size=2).map(tuple),
    expected=st.sampled_from([None, 0, 1, 2]),
    links=st.frozensets(st.sampled_from([("a", 1), ("b", 2), ("c", 3)])),
    migrates=st.booleans(),
    has_waitaof=st.booleans(),
)


@given(facts)
def test_what_holds_is_one_line_of_profiles_without_gaps(facts: ReplicationFacts) -> None:
    holds = [unmet_requirement(profile, facts) is None for profile in DURABILITIES]

    assert holds == sorted(holds, reverse=True)
    held, above = highest_profile(facts)
    assert (held and held.name) == (DURABILITIES[sum(holds) - 1] if any(holds) else None)
    assert (above and above[0].name) == (None if all(holds) else DURABILITIES[sum(holds)])


@given(facts)
def test_no_profile_with_replicas_holds_while_one_is_missing(facts: ReplicationFacts) -> None:
    well = min(len(facts.followers), len(facts.links))
    if facts.unhealthy or not facts.expected or well < facts.expected:
        assert unmet_requirement("replicated", facts) is not None


@given(facts)
def test_a_lack_is_one_line_with_a_next_step(facts: ReplicationFacts) -> None:
    for profile in DURABILITIES:
        found = unmet_requirement(profile, facts)
        assert found is None or (found.fact and found.remedy and "\n" not in found.fact + found.remedy)


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
            {"followers": (), "unhealthy": ("there:1 does not answer",)},
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
    found, above = highest_profile(replace(BEST, **change))

    assert (found and found.name) == held
    assert (above is None) if fact is None else (above is not None and fact in above[1].fact)


@pytest.mark.parametrize("name", DURABILITIES)
def test_a_profile_knows_its_name_and_the_confirmations_that_it_waits_for(name: Durability) -> None:
    profile = profile_of(name)

    assert profile.name == name
    assert profile.waits_for_replicas == (profile.confirmations(3) > 0)
    assert profile.confirmations(0) == 0


def test_a_profile_needs_the_rights_to_see_what_it_waits_for() -> None:
    rights = {name: set(profile_of(name).commands(cluster=True)) for name in DURABILITIES}

    assert rights["fast"] == rights["durable"] == {"config|get"}
    assert rights["replicated"] == {"config|get", "role", "set", "wait", "cluster|nodes"}
    assert rights["strict"] == {"config|get", "role", "set", "waitaof", "cluster|nodes"}
    assert "cluster|nodes" not in profile_of("strict").commands(cluster=False)
