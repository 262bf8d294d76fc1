"""How a task is run: on the loop, in a thread or in a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from qbull.core.task import task_kind
from qbull.errors import DeclarationError


async def coroutine() -> None: ...
def plain() -> None: ...
def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "cpu", "kind"),
    [(coroutine, False, "async"), (plain, False, "thread"), (plain, True, "process")],
)
def test_a_function_is_run_where_it_belongs(function: Callable[..., Any], cpu: bool, kind: str) -> None:
    assert task_kind("t", function, cpu=cpu) == kind


@pytest.mark.parametrize(
    ("function", "cpu", "message"),
    [
        (coroutine, True, "remove async, or cpu=True"),
        (generator, False, "a generator cannot be a task"),
        (async_generator, False, "a generator cannot be a task"),
    ],
)
def test_what_cannot_be_run_is_refused(function: Callable[..., Any], cpu: bool, message: str) -> None:
    with pytest.raises(DeclarationError, match=f'^task "t": .*{message}'):
        task_kind("t", function, cpu=cpu)
