"""The reference is made from the code, and is whole: every public name, endpoint, command, option, variable, metric and Redis name."""

from __future__ import annotations

import re

import click
import pytest
from reading import READ
from reference import REFERENCE, environment, python, redis_names

import qbull
from qbull.api.metrics import METRICS
from qbull.api.table import TABLE
from qbull.cli.main import COMMANDS
from qbull.cli.main import qbull as command_line
from qbull.store import names


def test_every_public_name_is_there_once_and_says_what_it_is() -> None:
    named = [name for part in python.PARTS.values() for name in part]
    page = REFERENCE["python"]()

    assert sorted(named) == sorted(qbull.__all__)
    for part in re.split(r"^#{3,4} ", page, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        words = re.sub(r"```python\n.*?```|^## .*", "", text, flags=re.DOTALL | re.MULTILINE).strip()
        assert len(words) > 15 or "compat" in head, f"{head} says nothing of itself"


@pytest.mark.parametrize("owner", [name for name in python.MEMBERS if hasattr(qbull, name)])
def test_every_member_that_is_shown_is_there(owner: str) -> None:
    page = REFERENCE["python"]()

    for member in python.MEMBERS[owner]:
        assert f"#### {owner}.{member}\n" in page
        assert hasattr(getattr(qbull, owner), member) or (owner, member) == ("App", "schedules")


def test_what_the_page_leads_to_is_on_it() -> None:
    page = REFERENCE["python"]()
    heads = {re.sub(r"[^\w-]", "", head.lower()) for head in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}

    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= heads


def test_every_endpoint_is_there() -> None:
    page = REFERENCE["rest"]()

    for endpoint in TABLE:
        assert f"### `{endpoint.method} {endpoint.path}`" in page
        assert f"{endpoint.summary}." in page


def test_every_command_is_there_with_every_option() -> None:
    page = REFERENCE["command_line"]()
    context = click.Context(command_line)

    for name in COMMANDS:
        command = command_line.get_command(context, name)
        assert command is not None
        assert (f"## qbull {name}\n" in page) is not command.hidden
        for option in command.params:
            if isinstance(option, click.Option) and not (option.hidden or command.hidden):
                assert option.opts[-1] in page


def test_every_variable_that_is_read_is_there() -> None:
    listed = {
        name for rows in environment.VARIABLES.values() for names, *_ in rows for name in names.split(", ")
    }

    assert listed == READ


def test_every_metric_is_there() -> None:
    page = REFERENCE["metrics"]()

    assert [metric.name for metric in METRICS if f"| `{metric.name}` | {metric.kind} |" not in page] == []


def test_every_redis_name_is_there_with_its_type() -> None:
    page = REFERENCE["redis_names"]()
    lines = re.findall(
        rf"^      ?\S?.*\b({'|'.join(redis_names.KINDS)})   ", names.__doc__ or "", re.MULTILINE
    )

    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) >= len(lines) > 50
    assert all(row.split(" | ")[1] in redis_names.KINDS for row in rows), rows
    assert "| `ready:<level>` | stream |" in page
    assert "| `completed, failed, cancelled` | stream |" in page
    assert "| `<prefix>:done` | channel |" in page
