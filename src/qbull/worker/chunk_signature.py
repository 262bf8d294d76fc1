"""Chunks: what `@queue.task(chunk=…)` makes of a function that takes a list."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from qbull.config import QueueSettings
from qbull.errors import DeclarationError
from qbull.worker.chunk import ChunkCaller

DEFAULT_CHUNK_WAIT_SECONDS = 0.5
MAX_CHUNK_WAIT_SECONDS = 60.0
MAX_CHUNK_JOBS = 1000


def make_chunk(
    settings: QueueSettings, name: str, function: Callable[..., Any], most: int, wait: float
) -> tuple[ChunkCaller, Callable[..., Any]]:
    """The function that runs for each job of the chunk, and one with the signature of a single job.

    Raises:
        DeclarationError: If the task or the queue does not fit a chunk.
    """

    def refuse(fact: str) -> DeclarationError:
        return DeclarationError(f'task "{name}": {fact}')

    if not isinstance(most, int) or isinstance(most, bool) or not 2 <= most <= MAX_CHUNK_JOBS:
        raise refuse(f"chunk={most!r}: give a whole number from 2 to {MAX_CHUNK_JOBS:,}")
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= MAX_CHUNK_WAIT_SECONDS:
        raise refuse(f"wait={wait!r}: give seconds from 0 to {MAX_CHUNK_WAIT_SECONDS:g}")
    if settings.has_single_lane:
        raise refuse('chunk and order="partition": there is one job at a time; use order="key", or no order')
    if settings.concurrency < most:
        raise refuse(
            f"chunk={most}, but a worker runs {settings.concurrency} jobs of the queue at a time; "
            f"give the queue concurrency={most} or more"
        )
    item, result = _types(name, function, refuse)

    def one(item: Any) -> Any: ...

    one.__annotations__ = {"item": item, "return": result}
    return ChunkCaller(name, function, most, wait), one


def _types(
    name: str, function: Callable[..., Any], refuse: Callable[[str], DeclarationError]
) -> tuple[Any, Any]:
    """The types of a single job: its item, and its result."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # whatever evaluating an annotation raises
        raise refuse(f"{error}; annotations must name types that exist when the task is declared") from None
    parameters = list(inspect.signature(function).parameters)
    taken = hints.get(parameters[0]) if len(parameters) == 1 else None
    if taken is not list and typing.get_origin(taken) is not list:
        raise refuse("chunk: its function takes one list, for example rows: list[Row]")
    given = hints.get("return", Any)
    item = typing.get_args(taken)[0] if typing.get_args(taken) else Any
    if given is list:
        return item, Any
    if typing.get_origin(given) is list:
        kinds = [kind for kind in _alternatives(typing.get_args(given)[0]) if not _is_error(kind)]
        return item, typing.Union[tuple(kinds)] if kinds else Any  # noqa: UP007
    if given not in (Any, None, type(None)):
        raise refuse("chunk: its function returns None, or a list with one result for each")
    return item, given


def _alternatives(kind: Any) -> tuple[Any, ...]:
    origin = typing.get_origin(kind)
    return typing.get_args(kind) if origin in (typing.Union, type(int | str)) else (kind,)


def _is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)
