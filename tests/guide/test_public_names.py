"""The public names: `qbull.__all__` is the truth."""

from __future__ import annotations

import inspect
import types
from pathlib import Path

import pytest

import qbull


@pytest.mark.parametrize("name", qbull.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    thing = getattr(qbull, name)

    assert inspect.getdoc(thing)


def test_the_names_are_sorted_and_there_once() -> None:
    assert qbull.__all__ == sorted(set(qbull.__all__))


def test_nothing_public_is_missing_from_the_list() -> None:
    for name in qbull.__all__:
        getattr(qbull, name)  # some are loaded when they are first used
    present = {
        name
        for name, thing in vars(qbull).items()
        if not name.startswith("_") and not isinstance(thing, types.ModuleType)
    }

    assert present == set(qbull.__all__)


def test_every_public_method_is_documented() -> None:
    undocumented = [
        f"{name}.{method}"
        for name in qbull.__all__
        if inspect.isclass(kind := getattr(qbull, name)) and not issubclass(kind, Exception)
        for method, thing in vars(kind).items()
        if not method.startswith("_") and inspect.isroutine(thing) and not thing.__doc__
    ]

    assert undocumented == []


def test_every_error_is_a_qbull_error_but_the_two_that_tasks_raise() -> None:
    errors = {
        name: thing
        for name in qbull.__all__
        if inspect.isclass(thing := getattr(qbull, name)) and issubclass(thing, Exception)
    }

    strangers = {name for name, error in errors.items() if not issubclass(error, qbull.QbullError)}

    assert strangers == {"Fail", "RetryAfter"}


def test_the_version_is_said() -> None:
    assert qbull.__version__.count(".") == 2


def test_the_page_lists_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "public_names.md").read_text(encoding="utf-8")
    words = {word.strip("`,├└─│ ") for word in page.split()}

    assert [name for name in qbull.__all__ if name not in words] == []


def test_a_task_keeps_the_name_docstring_and_signature_of_its_function() -> None:
    async def send(to: str, copies: int = 1) -> str:
        """Send a mail."""
        return to * copies

    task = qbull.App("redis://localhost:1").queue("mail").task(send)

    assert (task.__name__, task.__doc__, task.__module__) == ("send", "Send a mail.", __name__)
    assert inspect.signature(task) == inspect.signature(send)
    assert task.__wrapped__ is send  # type: ignore[attr-defined]
