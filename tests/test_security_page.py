"""SECURITY.md: every test that it names is there, and every requirement of ASVS 4.0.3 level 2 has an answer."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text()
THREATS, CHECKLIST = PAGE.split("## OWASP ASVS")
ACTORS = ["viewer", "operator", "admin", "producer", "worker", "relay", "network", "local user", "payload"]
STATES = ("met", "partly", "not met")

REQUIREMENTS = """
1.1: 1-7; 1.2: 1-4; 1.4: 1 4 5; 1.5: 1-4; 1.6: 1-4; 1.7: 1-2; 1.8: 1-2; 1.9: 1-2; 1.10: 1; 1.11: 1-2; 1.12: 2; 1.14: 1-6;
2.1: 1-12; 2.2: 1-3; 2.3: 1-3; 2.4: 1-5; 2.5: 1-7; 2.6: 1-3; 2.7: 1-6; 2.8: 1-7; 2.9: 1-3; 2.10: 1-4;
3.1: 1; 3.2: 1-4; 3.3: 1-4; 3.4: 1-5; 3.5: 1-3; 3.7: 1; 4.1: 1-3 5; 4.2: 1-2; 4.3: 1-3;
5.1: 1-5; 5.2: 1-8; 5.3: 1-10; 5.4: 1-3; 5.5: 1-4; 6.1: 1-3; 6.2: 1-6; 6.3: 1-2; 6.4: 1-2;
7.1: 1-4; 7.2: 1-2; 7.3: 1 3 4; 7.4: 1-3; 8.1: 1-4; 8.2: 1-3; 8.3: 1-8; 9.1: 1-3; 9.2: 1-4;
10.2: 1-2; 10.3: 1-3; 11.1: 1-8; 12.1: 1-3; 12.2: 1; 12.3: 1-6; 12.4: 1-2; 12.5: 1-2; 12.6: 1;
13.1: 1 3-5; 13.2: 1-3 5-6; 13.3: 1-2; 13.4: 1-2; 14.1: 1-4; 14.2: 1-6; 14.3: 2-3; 14.4: 1-7; 14.5: 1-4
"""
"""Section: the requirements of levels 1 and 2. Those that the standard has deleted are left out."""


def rows_of(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their heads."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return [
        row for row, after in zip(rows, [*rows[1:], [""]], strict=True) if "---" not in (row[0], after[0])
    ]


def numbers_in(text: str) -> list[str]:
    """The requirements in a cell such as "2.2.2, 2.7.1 to 2.7.6"."""
    found: list[str] = []
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        section, _, number = first.rpartition(".")
        upto = int(last.rpartition(".")[2]) if last else int(number)
        found += [f"{section}.{n}" for n in range(int(number), upto + 1)]
    return found


def expected() -> list[str]:
    found: list[str] = []
    for part in REQUIREMENTS.split(";"):
        section, _, numbers = part.strip().partition(": ")
        for span in numbers.split():
            first, _, last = span.partition("-")
            found += [f"{section}.{n}" for n in range(int(first), int(last or first) + 1)]
    return found


NUMBERED = [row for row in rows_of(CHECKLIST) if row[0][:1].isdigit()]
CHECKED = [row for row in NUMBERED if len(row) == 4]
ACTOR_ROWS = [row for row in rows_of(THREATS) if len(row) == 5]


def test_every_requirement_has_one_answer() -> None:
    answered = Counter(number for row in NUMBERED for number in numbers_in(row[0]))

    assert [number for number, count in answered.items() if count > 1] == []
    assert sorted(set(expected()) - set(answered)) == []
    assert sorted(set(answered) - set(expected())) == []


@pytest.mark.parametrize("row", [*CHECKED, *ACTOR_ROWS], ids=lambda row: row[0])
def test_a_row_names_tests_that_are_there(row: list[str]) -> None:
    for file, test in re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", row[-1]):
        assert (ROOT / file).is_file(), file
        assert not test or re.search(rf"def {test}\(", (ROOT / file).read_text()), f"{file}::{test}"


@pytest.mark.parametrize("row", CHECKED, ids=lambda row: row[0])
def test_a_row_has_its_test_or_its_reason(row: list[str]) -> None:
    *_, state, evidence = row
    reason = re.sub(r"`tests/[^`]*`", "", evidence).strip()

    assert state in STATES
    assert state != "met" or "`tests/" in evidence
    assert state == "met" or reason, "say why it is not met"


@pytest.mark.parametrize("actor", ACTORS)
def test_the_threat_model_has_every_actor_with_tests(actor: str) -> None:
    assert any(actor in row[0] and "`tests/" in row[-1] for row in ACTOR_ROWS)
