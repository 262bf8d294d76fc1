"""A queue's layout: which partitions there are after any number of changes, and where a key was before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qbull.core.layout import (
    GENERATION_SPAN_PARTITIONS,
    Generation,
    Layout,
    generation_of,
    index_in_generation,
)
from qbull.core.route import PARTITION_LANE, digest, partition_of_digest

COUNTS = st.integers(1, GENERATION_SPAN_PARTITIONS)
KEYS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def after(*counts: int) -> Layout:
    layout = Layout(partitions=counts[0])
    for count in counts[1:]:
        layout = layout.begins(count).switched()
    return layout


@given(st.lists(COUNTS, min_size=1, max_size=6))
def test_no_two_partitions_of_a_queue_have_one_number(counts: list[int]) -> None:
    numbers = [number for generation in after(*counts).generations for number in generation.numbers]

    assert len(set(numbers)) == len(numbers) == sum(counts)


@given(KEYS, COUNTS, st.integers(0, 1000))
def test_people_see_the_partition_that_the_published_rule_gives(
    key: str, count: int, generation: int
) -> None:
    number = Generation(generation, count).home(digest(key))

    assert index_in_generation(number) == partition_of_digest(digest(key), count)
    assert generation_of(number) == generation


@given(KEYS, COUNTS, COUNTS)
def test_where_a_key_was_before_follows_from_it(key: str, before: int, now: int) -> None:
    layout = after(before, now)
    [older] = layout.older

    number = layout.current.home(digest(key))

    assert older.homes(digest(key), layout.current, number) == [partition_of_digest(digest(key), before)]


@given(st.integers(0, 2**64 - 1), st.integers(1, 200), st.integers(1, 200))
def test_a_partition_in_one_lane_knows_all_that_its_keys_may_come_from(
    number: int, before: int, now: int
) -> None:
    layout = after(before, now)
    [older] = layout.older
    route = number.to_bytes(8, "big")

    homes = older.homes(PARTITION_LANE, layout.current, layout.current.home(route))

    assert older.home(route) in homes


def test_sixteen_partitions_of_four_come_from_one_each() -> None:
    layout = after(4, 16)
    [four] = layout.older

    assert [list(four.homes(PARTITION_LANE, layout.current, n)) for n in layout.current.numbers] == [
        [place % 4] for place in range(16)
    ]


def test_a_change_goes_step_by_step() -> None:
    four = Layout(partitions=4)
    coming = four.begins(16)
    sixteen = coming.switched()
    worked_off = sixteen.drained(0)
    empty = worked_off.gone(0, {"completed": 7})
    forgotten = empty.forgotten(0)

    assert (coming.partitions, coming.coming, coming.settled) == (4, 16, False)
    assert (sixteen.partitions, sixteen.settled, sixteen.counts) == (16, False, (4,))
    assert [g.partitions for g in sixteen.busy] == [4, 16]
    assert worked_off.settled
    assert [g.partitions for g in worked_off.busy] == [16]
    assert [g.partitions for g in worked_off.generations] == [4, 16]
    assert [g.partitions for g in empty.generations] == [16]
    assert forgotten.older == ()
    assert forgotten.past == {"completed": 7}
    assert forgotten.counts == (4,)


def test_only_earlier_generations_that_are_not_worked_off_come_before() -> None:
    layout = after(4, 16, 6).drained(0)

    assert [g.number for g in layout.before(layout.current.numbers[0])] == [1]
    assert layout.before(1 * GENERATION_SPAN_PARTITIONS) == []
