"""The name of stored arguments tells the id of their job, and no other text is such a name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.argument_names import argument_folder, argument_name, read_argument_name

FOLDER = argument_folder("orders", "0123456789abcdef" * 2)


@given(st.text(min_size=1, max_size=200), st.floats(0, 1e11))
def test_a_name_tells_its_id_and_its_time(id: str, seconds: float) -> None:
    name = argument_name(FOLDER, id, seconds)

    told = read_argument_name(name)

    assert told is not None and (told.id, told.seconds) == (id, int(seconds))
    assert name.isascii() and all(0 < len(part) <= 200 for part in name.split("/"))
    assert argument_name(FOLDER, id, seconds) != name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "../secret",
        "/etc/passwd",
        f"{FOLDER}/../eA-1-{'0' * 16}",
        f"{FOLDER}//eA-1-{'0' * 16}",
        f"{FOLDER}/eA-1-{'0' * 15}",
        f"{FOLDER}/e-1-{'0' * 16}",
        f"orders/eA-1-{'0' * 16}",
        f"{FOLDER}/eA-1-{'0' * 16}\n",
    ],
)
def test_other_texts_are_no_names(name: str) -> None:
    assert read_argument_name(name) is None
