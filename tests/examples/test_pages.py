"""The pages of the examples: every command that one of them gives is in the tests, to the letter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import blocks_of
from playing import EXAMPLES

TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
SET_UP = re.compile(
    r"make setup|\. \.venv/bin/activate|cd examples/\w+|export QBULL_DATABASE_URL=.*|TOKEN=.*"
    r"|python -m venv \.venv && \. \.venv/bin/activate|pip install -r requirements-test\.txt"
)
EVERY_CURL = "every_line_of_the_page_that_asks_the_api"
"""The test of schedulers that reads its lines from the page."""


@pytest.mark.parametrize("page", sorted(EXAMPLES.glob("*/README.md")), ids=lambda page: page.parent.name)
def test_every_command_is_in_the_tests(page: Path) -> None:
    lines = [line for block in blocks_of(page) if block.language == "sh" for line in block.text.splitlines()]
    commands = [re.split(r"  +#", line)[0].strip() for line in lines]

    left = [
        command
        for command in commands
        if command and not SET_UP.fullmatch(command) and not played(page.parent.name, command)
    ]

    assert left == []
    assert commands


RECIPE = re.compile(r"`((?:pm2|supervisord|qbull serve) [^`]*)`")


@pytest.mark.parametrize("page", sorted(EXAMPLES.glob("*/README.md")), ids=lambda page: page.parent.name)
def test_every_recipe_for_a_process_manager_is_in_the_tests(page: Path) -> None:
    deploy = page.read_text().partition("## Deploy it")[2].partition("\n## ")[0]
    recipes = RECIPE.findall(deploy)

    assert [recipe for recipe in recipes if recipe not in TESTS] == []
    assert recipes or not (page.parent / ".env.example").exists()


def played(example: str, command: str) -> bool:
    if example == "schedulers" and command.startswith("curl "):
        return EVERY_CURL in TESTS
    return command in TESTS or command.replace('"', '\\"') in TESTS
