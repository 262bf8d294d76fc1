"""The reference: pages made from the code when the site is built, so that none of them can say something else than the code."""

from __future__ import annotations

from collections.abc import Callable

from reference import command_line, environment, index, metrics, python, redis_names, rest

REFERENCE: dict[str, Callable[[], str]] = {
    "index": index.page,
    **python.pages(),
    **rest.pages(),
    "command_line": command_line.page,
    "environment": environment.page,
    "metrics": metrics.page,
    "redis_names": redis_names.page,
}
