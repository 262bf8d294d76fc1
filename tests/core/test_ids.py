"""Job ids: 32 hexadecimal digits that any UUID library reads, sort by time and carry the partition."""

from __future__ import annotations

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.ids import check_id, new_id, partition_in
from qbull.errors import ArgumentsError


def test_an_id_is_a_uuid_of_version_seven() -> None:
    id = new_id(3)

    read = uuid.UUID(id)

    assert (len(id), read.version, read.variant, read.hex) == (32, 7, uuid.RFC_4122, id)


def test_an_id_begins_with_the_millisecond_in_which_it_was_made() -> None:
    before = time.time_ns() // 1_000_000

    made = int(new_id(0)[:12], 16)

    assert before <= made <= time.time_ns() // 1_000_000


@given(st.integers(0, 4095))
def test_an_id_tells_the_partition_that_it_was_made_for(partition: int) -> None:
    assert partition_in(new_id(partition)) == partition


@given(st.integers(0, 4095))
def test_an_id_that_was_made_here_is_a_valid_one(partition: int) -> None:
    id = new_id(partition)

    assert check_id(id) == id


def test_two_ids_are_never_the_same() -> None:
    assert len({new_id(0) for _ in range(20_000)}) == 20_000


@pytest.mark.parametrize(
    "foreign",
    [
        "email:verify:u1",
        "",
        "7",
        str(uuid.UUID("0190a4c1-7f2e-7003-8a1b-000000000001")),  # with hyphens
        uuid.UUID("0190a4c1-7f2e-7003-8a1b-000000000001").hex.upper(),
        "5ab4daf6ca644af183186a7c8e21e12a",  # of version four
        "0190a4c17f2e70037a1b000000000001",  # another variant
        "0190a4c17f2e70038a1b0000000000011",
    ],
)
def test_an_id_from_elsewhere_tells_no_partition(foreign: str) -> None:
    assert partition_in(foreign) is None


@given(st.text(max_size=60))
def test_asking_any_text_for_its_partition_never_fails(text: str) -> None:
    found = partition_in(text)

    assert found is None or 0 <= found <= 4095


@pytest.mark.parametrize("id", ["a", "x" * 200, "email:verify:u1", "ñandú 🚚", "{braces}", "a b", "-", "0"])
def test_printable_text_is_a_valid_id(id: str) -> None:
    assert check_id(id) == id


@pytest.mark.parametrize(
    "id", ["", "x" * 201, "line\nbreak", "tab\t", "nul\x00", "\ud800", 7, None, b"bytes"]
)
def test_a_wrong_id_is_refused_and_shown(id: object) -> None:
    with pytest.raises(ArgumentsError, match="use 1 to 200 printable characters") as refused:
        check_id(id)  # type: ignore[arg-type]

    assert "\n" not in str(refused.value)
