"""Who reads which partition: even, stable, and moving no more than it must."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from qbull.core.sharing import (
    ShareMember,
    assign_partitions,
    covered_partitions,
    static_partitions,
    unassigned_partitions,
)

NAMES = st.lists(st.text("abcdefgh0123456789-", min_size=1, max_size=8), min_size=1, max_size=20, unique=True)


def held_by(shares: dict[str, list[int]]) -> dict[str, ShareMember]:
    return {name: ShareMember(frozenset(share)) for name, share in shares.items()}


@given(st.integers(1, 64), NAMES)
def test_every_partition_is_read_and_the_shares_are_even(partitions: int, names: list[str]) -> None:
    shares = assign_partitions(partitions, {name: ShareMember() for name in names})

    sizes = [len(share) for share in shares.values()]
    assert unassigned_partitions(partitions, shares.values()) == []
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1, "a worker that could help is idle"
    if len(names) <= partitions:
        assert sum(sizes) == partitions, "a partition is read twice although there are enough of them"


@given(st.integers(1, 64), NAMES)
def test_computed_again_on_its_own_outcome_it_changes_nothing(partitions: int, names: list[str]) -> None:
    shares = assign_partitions(partitions, {name: ShareMember() for name in names})

    assert assign_partitions(partitions, held_by(shares)) == shares


@given(st.integers(1, 64), NAMES)
def test_the_order_in_which_workers_are_known_does_not_matter(partitions: int, names: list[str]) -> None:
    there = assign_partitions(partitions, {name: ShareMember() for name in names})
    back = assign_partitions(partitions, {name: ShareMember() for name in reversed(names)})

    assert there == back


@given(st.integers(1, 64), NAMES)
def test_a_worker_that_comes_takes_its_share_and_nothing_else_moves(
    partitions: int, names: list[str]
) -> None:
    before = assign_partitions(partitions, {name: ShareMember() for name in names})

    after = assign_partitions(partitions, {**held_by(before), "newcomer": ShareMember()})

    moved = sum(len(set(before[name]) - set(after[name])) for name in names)
    gained = sum(len(set(after[name]) - set(before[name])) for name in names)
    assert moved <= len(after["newcomer"])
    assert gained == 0


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 4), st.integers(5, 20), st.integers(0, 4), st.lists(st.integers(0, 4), max_size=60))
def test_in_whatever_order_they_look_and_act_nothing_else_moves(
    workers: int, partitions: int, at: int, turns: list[int]
) -> None:
    """Each looks at what all have said so far, and acts on it a while later."""
    names = [f"w{n}" for n in range(workers + 1)]
    newcomer = names[at % len(names)]
    before = assign_partitions(partitions, {name: ShareMember() for name in names if name != newcomer})
    now = {**before, newcomer: []}
    seen: dict[str, dict[str, list[int]]] = {}

    for turn in [*turns, *range(4 * len(names))]:
        name = names[turn % len(names)]
        if name not in seen:
            seen[name] = dict(now)
        else:
            now[name] = assign_partitions(partitions, held_by({**seen.pop(name), name: now[name]}))[name]
            assert name == newcomer or set(now[name]) <= set(before[name]), "one that stays gained something"

    assert sorted(partition for share in now.values() for partition in share) == list(range(partitions))


@given(st.integers(1, 64), NAMES)
def test_when_a_worker_goes_only_what_it_held_moves(partitions: int, names: list[str]) -> None:
    before = assign_partitions(partitions, {name: ShareMember() for name in names})
    if len(names) == 1 or len(names) > partitions:
        return
    rest = names[1:]

    after = assign_partitions(partitions, held_by({name: before[name] for name in rest}))

    assert all(set(before[name]) <= set(after[name]) for name in rest)
    assert unassigned_partitions(partitions, after.values()) == []


@given(st.integers(1, 64), NAMES, st.integers(1, 5))
def test_nobody_takes_more_than_it_may(partitions: int, names: list[str], most: int) -> None:
    shares = assign_partitions(partitions, {name: ShareMember(most=most) for name in names})

    assert all(len(share) <= most for share in shares.values())
    assert len(unassigned_partitions(partitions, shares.values())) == max(partitions - most * len(names), 0)


def test_eight_workers_have_two_of_sixteen_partitions_each() -> None:
    shares = assign_partitions(16, {f"worker-{n}": ShareMember() for n in range(8)})

    assert [len(share) for share in shares.values()] == [2] * 8


def test_static_shares_are_those_of_the_formula() -> None:
    assert [static_partitions(16, i, 8, 0, 1) for i in range(8)] == [[i, i + 8] for i in range(8)]


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 4))
def test_static_shares_cover_everything_over_all_processes(
    partitions: int, instances: int, processes: int
) -> None:
    shares = [
        static_partitions(partitions, i, instances, p, processes)
        for i in range(instances)
        for p in range(processes)
    ]

    assert unassigned_partitions(partitions, shares) == []
    for i in range(instances):
        mine = {
            p
            for process in range(processes)
            for p in static_partitions(partitions, i, instances, process, processes)
        }
        assert all(p % instances == i for p in mine)


@given(st.integers(1, 64), st.integers(1, 16), st.sets(st.integers(0, 15)), NAMES)
def test_exactly_the_partitions_of_missing_instances_are_covered_each_by_one(
    partitions: int, instances: int, missing: set[int], names: list[str]
) -> None:
    shares = covered_partitions(partitions, instances, missing, names)

    covered = sorted(partition for share in shares.values() for partition in share)
    assert covered == [p for p in range(partitions) if p % instances in missing]


@given(st.integers(1, 64), NAMES)
def test_a_reader_that_leaves_moves_only_what_it_covered(partitions: int, names: list[str]) -> None:
    before = covered_partitions(partitions, 2, [1], names)
    after = covered_partitions(partitions, 2, [1], names[1:])

    assert all(set(before[name]) <= set(after[name]) for name in names[1:])
