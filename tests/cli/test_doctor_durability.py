"""doctor says which durability profile really holds, on every primary, and why not a higher one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell import Shell

from topology import DURABLE, Cluster, Pair, Trio, raised_cluster, raised_pair, raised_trio

pytestmark = [pytest.mark.xdist_group("confirm"), pytest.mark.timeout(90)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with raised_pair(tmp_path) as pair:
        yield pair


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with raised_cluster(tmp_path, DURABLE) as cluster:
        yield cluster


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    with raised_trio(tmp_path, DURABLE) as trio:
        yield trio


def durability(url: str, directory: Path, **environment: str) -> list[tuple[str, str, str]]:
    """What doctor says of it: level, subject, fact and next step."""
    done = Shell(url, directory).run("doctor", "--json", **environment)
    findings: list[dict[str, Any]] = json.loads(done.out)["findings"]
    return [
        (f["level"], f["subject"], f"{f['fact']}; {f['next']}")
        for f in findings
        if f["subject"].startswith("durability")
    ]


def test_the_highest_profile_is_said(pair: Pair, tmp_path: Path) -> None:
    [(level, _, said)] = durability(pair.url, tmp_path)

    assert level == "ok"
    assert '"strict" is supported' in said


def test_a_setting_that_was_changed_while_the_server_runs_is_noticed(pair: Pair, tmp_path: Path) -> None:
    pair.replicas[0].tell("CONFIG", "SET", "appendfsync", "everysec")
    [after_one] = durability(pair.url, tmp_path)
    pair.primary.tell("CONFIG", "SET", "appendfsync", "everysec")
    [after_both] = durability(pair.url, tmp_path)

    assert after_one[0] == "ok"
    assert '"replicated" is supported' in after_one[2]
    assert f'"strict" is not: its replica {pair.replicas[0].place} has appendfsync everysec' in after_one[2]
    assert after_both[0] == "note"
    assert (
        '"fast" is supported' in after_both[2]
        and '"durable" is not: it has appendfsync everysec' in after_both[2]
    )
    assert 'run "CONFIG SET appendfsync always"' in after_both[2]


def test_a_profile_that_is_asked_for_and_does_not_hold_is_a_problem(pair: Pair, tmp_path: Path) -> None:
    pair.replicas[0].kill()

    [(level, _, said)] = durability(pair.url, tmp_path, QBULL_DURABILITY="replicated")

    assert level == "problem"
    assert 'only "durable" is supported, and the app requires "replicated": 0 of 1 replica follow it' in said


def test_a_server_whose_replicas_nobody_counts_is_told_how(pair: Pair, tmp_path: Path) -> None:
    [(level, _, said)] = durability(pair.url.partition("?")[0], tmp_path)

    assert level == "ok"
    assert (
        '"durable" is supported' in said
        and "nothing says how many replicas it should have; 1 connected now" in said
    )


def test_each_primary_of_a_cluster_is_judged(cluster: Cluster, tmp_path: Path) -> None:
    weak = cluster.primaries()[1]
    weak.tell("CONFIG", "SET", "appendfsync", "everysec")

    said = {subject: (level, fact) for level, subject, fact in durability(cluster.url, tmp_path)}

    assert said.keys() == {f"durability of {node.place}" for node in cluster.primaries()}
    level, fact = said.pop(f"durability of {weak.place}")
    assert (level, '"fast" is supported' in fact) == ("note", True)
    assert all(level == "ok" and '"strict" is supported' in fact for level, fact in said.values())


def test_a_cluster_that_moves_replicas_by_itself_is_not_strict(cluster: Cluster, tmp_path: Path) -> None:
    for node in cluster.primaries():
        node.tell("CONFIG", "SET", "cluster-allow-replica-migration", "yes")

    said = durability(cluster.url, tmp_path)

    assert all(
        '"strict" is not: its cluster may give a replica to another primary' in fact for _, _, fact in said
    )


def test_sentinels_are_asked_for_the_replicas_that_are_down_too(trio: Trio, tmp_path: Path) -> None:
    [(_, _, whole)] = durability(trio.url, tmp_path)
    trio.servers[2].kill()
    [(_, _, short)] = durability(trio.url, tmp_path)

    assert '"strict" is supported' in whole
    assert (
        f'"replicated" is not: 1 of 2 replicas follow it: {trio.servers[2].place}: cannot be reached' in short
    )
