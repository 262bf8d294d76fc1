"""The options of a job of BullMQ or Bull: arguments, priority, attempts and backoff."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from qbull.core.record import DEFAULT_PRIORITY
from qbull.core.retry import retry_header
from qbull.drain.message import CannotMove
from qbull.errors import MAX_DELAY_SECONDS

LAST_PRIORITY = 10
MAX_BACKOFF_STEPS = 40
"""The waits of an exponential backoff that are computed. After so many, each is longer than ten years."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def json_of(text: bytes | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        raise CannotMove("its record is not JSON, so it is none of BullMQ's") from None


def as_arguments(data: Any, *, snake_case: bool = False) -> tuple[list[Any], dict[str, Any]]:
    """The arguments by name if the data is an object, otherwise the data as the only argument."""
    if data is None:
        return [], {}
    if not isinstance(data, dict):
        return [data], {}
    if not snake_case:
        return [], data
    names = {name: _HUMP.sub("_", name).lower() for name in data}
    if len(set(names.values())) < len(names):
        raise CannotMove("two of its arguments have the same name in snake_case; let the old workers run it")
    return [], {names[name]: value for name, value in data.items()}


def priority_of(fields: Mapping[str, bytes], options: Mapping[str, Any]) -> int:
    """Jobs without a priority run before all that have one, and 1 before 2. Jobs from 5 on share the last."""
    given = int(float(fields.get("priority") or options.get("priority") or 0))
    return min(DEFAULT_PRIORITY + max(given, 0), LAST_PRIORITY)


def retry_header_of(options: Mapping[str, Any], made: int, *, is_bull: bool) -> str:
    """The attempts that are left of a job that was run `made` times, and the waits between them."""
    attempts = max(int(options.get("attempts") or 1), 1)
    left = max(attempts - made, 1)
    waits = [_wait(options.get("backoff"), made + n, is_bull) for n in range(1, min(left, MAX_BACKOFF_STEPS))]
    return retry_header(left, waits)


def _wait(backoff: Any, made: int, is_bull: bool) -> float:
    """Seconds before the retry after this many runs."""
    if not backoff:
        return 0.0
    if isinstance(backoff, int | float):
        backoff = {"type": "fixed", "delay": backoff}
    delay = float(backoff.get("delay") or 0) / 1000
    match backoff.get("type"):
        case "fixed":
            wait = delay
        case "exponential" if is_bull:
            wait = (2.0**made - 1) * delay
        case "exponential":
            wait = 2.0 ** (made - 1) * delay
        case kind:
            raise CannotMove(
                f'its backoff "{kind}" is a function of its workers; '
                "give --retry task to use the retry policy of its task here"
            )
    return min(wait, float(MAX_DELAY_SECONDS))
