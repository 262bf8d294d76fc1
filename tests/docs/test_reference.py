"""The reference is made from the code, and is whole: every public name, endpoint, command, option, variable, metric and Redis name."""

from __future__ import annotations

import inspect
import re

import click
import pytest
from reading import READ
from reference import REFERENCE, environment, python, redis_names
from reference.raises import RAISES

import qbull
from qbull.api.metrics import METRICS
from qbull.api.table import TABLE
from qbull.cli.main import COMMANDS
from qbull.cli.main import qbull as command_line
from qbull.store import names

PYTHON = {name: make() for name, make in REFERENCE.items() if name.startswith("python/")}


def test_every_public_name_has_its_place_and_says_what_it_is() -> None:
    named = [name for part in python.PARTS.values() for name in part]

    assert sorted(named) == sorted(qbull.__all__)
    for name in named:
        thing = getattr(qbull, name)
        if not inspect.isclass(thing):
            assert f"\n## {name}\n" in PYTHON["python/functions"]
        elif python.is_error(thing):
            assert f"\n## {name}\n" in PYTHON["python/errors"]
        else:
            assert PYTHON[python.page_of(name)].startswith(f"# {name}\n")
    for page, whole in PYTHON.items():
        for part in re.split(r"^#{2,3} ", whole, flags=re.MULTILINE)[1:]:
            head, _, text = part.partition("\n")
            words = re.sub(r"```python\n.*?```", "", text, flags=re.DOTALL).strip()
            assert len(words) > 15 or "compat" in page, f"{page}: {head} says nothing of itself"


@pytest.mark.parametrize("owner", [name for name in python.MEMBERS if hasattr(qbull, name)])
def test_every_member_that_is_shown_is_there(owner: str) -> None:
    for member in python.MEMBERS[owner]:
        assert f"## {owner}.{member}\n" in PYTHON[python.page_of(owner)]
        assert hasattr(getattr(qbull, owner), member) or (owner, member) == ("App", "schedules")


def test_every_documented_parameter_is_a_row_with_its_type_and_default() -> None:
    page = PYTHON["python/app"]

    for name, parameter in inspect.signature(qbull.App.queue).parameters.items():
        if name != "self":
            assert f"| `{name}` | " in page, name
            if parameter.default is not parameter.empty:
                assert re.search(rf"^\| `{name}` \| `.+` \| `.+` \| \S", page, re.MULTILINE), name


def test_every_error_that_a_method_raises_is_public() -> None:
    shown = {f"{owner}.{member}" for owner, members in python.MEMBERS.items() for member in members}

    assert set(RAISES) <= shown
    for errors in RAISES.values():
        for name in re.findall(r"`([A-Z]\w+)`", "; ".join(errors)):
            assert python.is_error(getattr(qbull, name))


def test_links_of_the_reference_lead_to_its_pages() -> None:
    for name, make in REFERENCE.items():
        for link in re.findall(r"\]\(((?!\.\.|#)[^)#]+)\.md", make()):
            assert f"{name.rpartition('/')[0]}/{link}".lstrip("/") in REFERENCE, f"{name}: {link}"


def test_every_endpoint_is_there_once() -> None:
    pages = "".join(make() for name, make in REFERENCE.items() if name.startswith("rest/"))

    for endpoint in TABLE:
        assert pages.count(f"## `{endpoint.method} {endpoint.path}`") == 1
        assert f"{endpoint.summary}." in pages


def test_every_command_is_there_with_every_option() -> None:
    page = REFERENCE["command_line"]()
    context = click.Context(command_line)

    for name in COMMANDS:
        command = command_line.get_command(context, name)
        assert command is not None
        assert (f"### qbull {name}\n" in page) is not command.hidden
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
