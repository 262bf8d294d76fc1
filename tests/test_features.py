"""Features: what docs/features.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "features.md"
PEERS = ("Celery", "RQ", "arq", "Dramatiq", "BullMQ", "Sidekiq", "Oban")


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the table whose first line begins so, by the name of their feature."""
    table = PAGE.read_text().partition(heading)[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {name: rest for name, *rest in cells}


def test_every_feature_has_its_guide_and_its_test() -> None:
    for name, (_, guide, test) in rows("| feature | | guide |").items():
        [page] = re.findall(r"\]\((\S+\.md)\)", guide)
        [(function, file)] = re.findall(r"\[`(\w+)`\]\((\S+\.py)\)", test)
        source = (PAGE.parent / file).read_text()

        assert (PAGE.parent / page).exists(), name
        assert re.search(rf"^(async )?def {function}\(", source, re.MULTILINE), (
            f"{name}: no {function} in {file}"
        )


def test_every_feature_is_compared_in_known_words() -> None:
    compared = rows(f"| feature | {' | '.join(PEERS)} |")
    words = re.compile(r"(\[?(yes|no|part|Pro|Enterprise)\b.*)|plugin: \[.*\]\(.*\)|–")

    assert list(compared) == list(rows("| feature | | guide |"))
    for name, cells in compared.items():
        assert len(cells) == len(PEERS), name
        assert all(words.fullmatch(cell) for cell in cells), name


def test_every_note_is_there_and_used() -> None:
    text = PAGE.read_text()
    used = {int(n) for n in re.findall(r"<sup>(\d+)</sup>", text)}

    assert used == {int(n) for n in re.findall(r"^(\d+)\. ", text, re.MULTILINE)}
