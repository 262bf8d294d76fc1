"""Which settings of workers do not fit together, judged from what they say of themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.config_warnings import WorkerDeclaration, config_warnings, spell_ranges
from qbull.core.sharing import ShareMember, assign_partitions, static_partitions


def static(instance: int, instances: int, pod: str = "", partitions: int = 16) -> WorkerDeclaration:
    share = frozenset(static_partitions(partitions, instance, instances, 0, 1))
    name = pod or f"pod-{instance}"
    return WorkerDeclaration(f"{name}/1", name, "static", share, instance=instance, instances=instances)


def taking(pod: str, *partitions: int, sharing: str = "auto", most: int | None = None) -> WorkerDeclaration:
    return WorkerDeclaration(f"{pod}/1", pod, sharing, frozenset(partitions), most)


def lines(seats: list[WorkerDeclaration], partitions: int = 16) -> list[str]:
    return [warning.line for warning in config_warnings(partitions, "", seats)]


@given(st.integers(1, 64), st.integers(1, 16))
def test_nothing_is_said_of_settings_that_fit(partitions: int, count: int) -> None:
    count = min(count, partitions)
    shares = assign_partitions(partitions, {f"pod-{n}": ShareMember() for n in range(count)})

    assert lines([static(i, count, partitions=partitions) for i in range(count)], partitions) == []
    assert lines([taking(pod, *share) for pod, share in shares.items()], partitions) == []
    assert lines([], partitions) == []


def test_a_missing_instance_is_named_with_its_partitions() -> None:
    [unread] = config_warnings(16, "", [static(i, 4) for i in (0, 1, 2)])

    assert unread.kind == "unread" and unread.serious
    assert unread.partitions == (3, 7, 11, 15)
    assert unread.line == (
        "no worker reads partitions 3, 7, 11, 15: of INSTANCE_COUNT=4, INSTANCE_ID 3 is not running; "
        "start it, or lower the count everywhere"
    )


@pytest.mark.parametrize("sharing", ["leased", "auto"])
def test_too_few_pods_for_their_cap_are_told_how_many_are_missing(sharing: str) -> None:
    seats = [taking(f"pod-{n}", *range(4 * n, 4 * n + 4), sharing=sharing, most=4) for n in range(3)]

    [unread] = config_warnings(16, "", seats)

    assert unread.partitions == (12, 13, 14, 15)
    assert unread.line == (
        "no worker reads partitions 12 to 15: 3 pods take up to 12 of 16 (PARTITIONS_PER_POD); "
        "start 1 more, or set PARTITIONS_PER_POD to 6"
    )


def test_partitions_on_their_way_to_a_worker_are_not_called_unread() -> None:
    assert lines([taking("a", *range(8)), taking("b")]) == []
    assert (
        lines([taking("a", *range(8), sharing="leased", most=8), taking("b", sharing="leased", most=8)]) == []
    )


def test_one_id_for_two_pods_is_named_and_processes_of_one_pod_are_not() -> None:
    twice = [static(0, 2, "a"), static(1, 2, "b"), static(1, 2, "c")]

    [same] = config_warnings(16, "", twice)

    assert (same.kind, same.serious, same.workers) == ("same-id", True, ("b/1", "c/1"))
    assert same.partitions == tuple(range(1, 16, 2))
    assert same.fact == "INSTANCE_ID=1 of 2 is used by 2 workers: b, c"
    assert "from 0 to 1" in same.next_step
    assert lines([static(0, 1, "a"), static(0, 1, "a")]) == []


def test_different_instance_counts_are_named() -> None:
    seats = [static(0, 2, "a"), static(1, 2, "b"), static(0, 4, "c")]

    [differ] = config_warnings(16, "", seats)

    assert differ.kind == "counts-differ" and not differ.serious
    assert differ.workers == ("c/1",)
    assert differ.fact == "INSTANCE_COUNT is not the same everywhere: 2 in 2; 4 in c"


def test_what_a_rolling_restart_leaves_unread_is_named() -> None:
    half_way = [static(0, 4, "new-0"), static(1, 2, "old-1")]

    unread, differ = config_warnings(16, "", half_way)

    assert unread.partitions == (2, 6, 10, 14)
    assert "the workers have different INSTANCE_COUNTs" in unread.fact
    assert differ.kind == "counts-differ"


def test_different_ways_of_sharing_are_named() -> None:
    seats = [taking("a", *range(16)), taking("b", sharing="leased", most=4), static(0, 2, "c")]

    [differ] = config_warnings(16, "", seats)

    assert differ.kind == "modes-differ"
    assert (
        differ.fact == "workers share its partitions in different ways: auto in 1; leased in b; static in c"
    )


def test_workers_with_other_settings_than_the_queue_are_named() -> None:
    old = WorkerDeclaration("a/1", "a", partitions=frozenset({0}), settings="1")
    new = WorkerDeclaration("b/1", "b", partitions=frozenset({0}), settings="2")
    silent = WorkerDeclaration("c/1", "c", partitions=frozenset({0}))

    [differ] = config_warnings(1, "2", [old, new, silent])

    assert differ.workers == ("a/1",)
    assert differ.line == (
        "a was started with other settings than the queue has now; restart it with the same code as the others"
    )


def test_workers_that_can_never_have_a_partition_are_named() -> None:
    capped = [taking("a", *range(16), most=16), taking("b", most=0)]
    beyond = [static(i, 3, partitions=2) for i in range(3)]

    [too_many] = lines(capped)
    assert (
        too_many == "1 worker process may read nothing: PARTITIONS_PER_POD is less than --processes in b; "
        "lower --processes or raise PARTITIONS_PER_POD"
    )
    [too_high] = lines(beyond, 2)
    assert (
        too_high == "INSTANCE_ID 2 of 3 has nothing to read: there are 2 partitions; "
        "start no more than 2, or give the queue more partitions"
    )


def test_numbers_are_spelled_shortly() -> None:
    assert spell_ranges([3]) == "3"
    assert spell_ranges([9, 1, 0]) == "0, 1, 9"
    assert spell_ranges([0, 1, 2, 3, 7, 9, 10, 11]) == "0 to 3, 7, 9 to 11"
