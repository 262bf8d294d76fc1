"""The saboteurs still fit the code, and name tests that exist. Running them takes minutes: `make saboteurs`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from catalogue import SABOTEURS, Saboteur

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("saboteur", SABOTEURS, ids=lambda each: each.name)
def test_its_change_fits_the_code_in_one_place(saboteur: Saboteur) -> None:
    text = (ROOT / "src" / "qbull" / saboteur.file).read_text()

    assert text.count(saboteur.old) == 1
    assert saboteur.new != saboteur.old


@pytest.mark.parametrize("saboteur", SABOTEURS, ids=lambda each: each.name)
def test_those_who_must_catch_it_are_there(saboteur: Saboteur) -> None:
    assert saboteur.caught_by
    assert all((ROOT / path).is_file() for path in saboteur.caught_by)


def test_each_has_a_name_of_its_own() -> None:
    assert len({saboteur.name for saboteur in SABOTEURS}) == len(SABOTEURS)


def test_the_page_of_reliability_knows_how_many_there_are() -> None:
    page = (ROOT / "docs/reliability.md").read_text()

    assert re.findall(r"(\d+) broken builds", page) == [str(len(SABOTEURS))]
