"""How much of a shared limit is used, as `app.limits` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from qbull.core.rate import Rate


@dataclass(frozen=True, slots=True)
class LimitKeyStatus:
    """The use of a limit by the jobs of one key.

    Args:
        key: the key; empty for the jobs without one.
        running: jobs that hold a slot.
        used: the weight that started in the last window of the rate.
        spent: the weight that started today, if the limit has a daily budget.
        waiting: jobs that wait for the limit.
    """

    key: str
    running: int
    used: int
    spent: int
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limit as it is used now.

    Args:
        name: the name of the limit.
        rate: the rate in force.
        concurrency: the maximum number of jobs at a time.
        daily: the weight that may start in a day.
        running: jobs that hold a slot of it, over all keys.
        used: the weight that started in the last window of the rate, of the jobs without a key.
        spent: the weight that started today, over all keys.
        changed: the settings that live settings override.
        waiting: jobs that wait for it, over all keys.
        since: when the first of them started to wait.
        queues: the jobs that wait, by queue.
        keys: the keys with the most use, and those for which jobs wait.
        granted: the weight that was ever granted, with what jobs reported beyond it.
        returned: the weight of that which was given back or reported as not used.
    """

    name: str
    rate: Rate | None
    concurrency: int | None
    daily: int | None
    running: int
    used: int
    spent: int
    changed: tuple[str, ...] = ()
    waiting: int = 0
    since: datetime | None = None
    queues: Mapping[str, int] = field(default_factory=dict)
    keys: tuple[LimitKeyStatus, ...] = ()
    granted: int = 0
    returned: int = 0
