"""The options of a call are written once: Python, the REST API, the command line and the page follow the table."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
from msgspec.structs import fields

from qbull.cli.enqueue import enqueue
from qbull.core.options import JOB_OPTIONS, Options
from qbull.task import Task, TaskDeclaration, TaskSettings
from qbull.views.jobs import JobOptionsBody

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "options.md"
NAMES = [option.name for option in JOB_OPTIONS]
IN_JSON = [option.name for option in JOB_OPTIONS if option.in_json]


def test_python_has_every_option() -> None:
    parameters = list(inspect.signature(Task.options).parameters)[1:]

    assert sorted(parameters) == sorted(NAMES)
    assert {*NAMES} <= {*inspect.signature(Options).parameters}


def test_the_docstring_explains_every_option() -> None:
    text = inspect.getdoc(Task.options) or ""

    assert [name for name in NAMES if f"{name}: " not in text] == []


def test_the_rest_api_has_every_option() -> None:
    assert list(JobOptionsBody.__struct_fields__) == IN_JSON


def test_the_command_line_has_every_option() -> None:
    flags = {one.name: one.help for one in enqueue.params if isinstance(one, click.Option)}

    assert {name: flags.get(name) for name in IN_JSON} == {o.name: o.help for o in JOB_OPTIONS if o.in_json}


def test_the_page_has_every_option() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.M)

    assert rows == NAMES


def test_the_settings_of_a_task_are_those_of_its_declaration() -> None:
    declared = [field.name for field in fields(TaskDeclaration)]

    assert [*TaskSettings.__annotations__, "cpu", "chunk", "wait"] == declared
