"""Shared limits: a rate, a number of slots and a budget that several queues and tasks use together.

A limit has a name and lives on the server. A task that uses it says how much a job weighs, and by which key
the limit counts. docs/decisions/0024 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from qbull.core.codec import ArgumentTemplate, Signature
from qbull.core.ids import check_name
from qbull.core.rate import Rate
from qbull.errors import MAX_COUNT, ArgumentsError, ConfigError, DeclarationError

LIMIT_NEED_MARK = "limit "
"""The start of the need of a job that waits for a shared limit. No name of a task has a space."""
LIMIT_SETTINGS = ("rate", "concurrency", "daily")
"""The settings of a limit that can be changed while workers run."""


@dataclass(frozen=True)
class Limit:
    """A limit that several queues and tasks share, over all workers.

    `openai = qbull.Limit("openai", rate=qbull.Rate(500, per=60), concurrency=20)`, and then
    `@queue.task(limit=openai)`. Live settings override these values.

    Args:
        name: the name of the limit. All tasks that name it share it.
        rate: the weight that may start in a period. A job weighs 1 unless the task says otherwise.
        concurrency: maximum number of jobs that run at a time.
        daily: the weight that may start in a day, from midnight to midnight UTC.
    """

    name: str
    rate: Rate | None = None
    concurrency: int | None = None
    daily: int | None = None

    def __post_init__(self) -> None:
        check_name("limit", self.name)
        check_limit_settings(self.name, {name: getattr(self, name) for name in LIMIT_SETTINGS})
        if self.rate is None and self.concurrency is None and self.daily is None:
            raise ConfigError(
                f'limit "{self.name}": it limits nothing; give it a rate, a concurrency or a daily budget'
            )

    def use(
        self,
        *,
        key: str | Callable[..., str] | None = None,
        weight: int | str | Callable[..., int] | None = None,
    ) -> LimitUse:
        """This limit as a task uses it: `@queue.task(limit=openai.use(key="{customer}", weight="tokens"))`.

        Args:
            key: a template over the arguments, or a function of them. Each key has the whole limit for
                itself; without one, all jobs share it.
            weight: how much of `rate` and `daily` a job takes: a number, the name of an argument, or a
                function of the arguments; 1 by default.
        """
        return LimitUse(self, key, weight)


class LimitUse(msgspec.Struct, frozen=True):
    """How a task uses a limit. Made by `Limit.use(…)`."""

    limit: Limit
    key: str | Callable[..., str] | None = None
    weight: int | str | Callable[..., int] | None = None


LimitArgument = Limit | LimitUse | Sequence[Limit | LimitUse]


def check_limit_settings(name: str, values: Mapping[str, Any]) -> None:
    """Refuse settings that a limit cannot have. None is no limit."""
    rate = values.get("rate")
    if rate is not None and not isinstance(rate, Rate):
        raise ConfigError(f'limit "{name}": rate={rate!r}: give a rate, for example qbull.Rate(500, per=60)')
    for what in ("concurrency", "daily"):
        value = values.get(what)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_COUNT:
            raise ConfigError(
                f'limit "{name}": {what}={value!r}: give a whole number from 1 to {MAX_COUNT:,}, or None'
            )


class LimitShare(NamedTuple):
    """The part of a limit that one job takes."""

    limit: str
    key: str
    """Empty if all jobs share the limit."""
    weight: int


class TaskLimit:
    """A limit of a task: makes the key and the weight of a job from its arguments."""

    def __init__(self, use: LimitUse, signature: Signature) -> None:
        self.limit = use.limit
        self._task = signature.name
        self._key = ArgumentTemplate("key of a limit", use.key, signature) if use.key is not None else None
        self._weight = 1 if use.weight is None else use.weight
        self.has_weight = use.weight is not None
        weight = self._weight
        if isinstance(weight, str) and weight not in signature.parameters:
            known = ", ".join(signature.parameters) or "no argument"
            raise DeclarationError(
                f'task "{self._task}": the weight "{weight}" names no argument; it may use {known}'
            )
        if isinstance(weight, bool) or (isinstance(weight, int) and not 0 <= weight <= MAX_COUNT):
            raise DeclarationError(
                f'task "{self._task}": weight={weight!r}: give a whole number from 0 to {MAX_COUNT:,}'
            )

    def share(self, arguments: dict[str, Any], weight: int | None = None) -> LimitShare:
        """The share of a job with these arguments. Raises ArgumentsError if they do not tell.

        `weight`: instead of the weight that the arguments give.
        """
        key = self._key.apply(arguments) if self._key is not None else ""
        return LimitShare(self.limit.name, key, self._weigh(arguments) if weight is None else weight)

    def _weigh(self, arguments: dict[str, Any]) -> int:
        weight = self._weight
        if isinstance(weight, int):
            return weight
        try:
            value = arguments[weight] if isinstance(weight, str) else weight(**arguments)
        except Exception as error:  # whatever the user's function raises
            raise ArgumentsError(
                f'task "{self._task}": its weight for limit "{self.limit.name}" cannot be made of these '
                f"arguments: {error!r}"
            ) from error
        return check_weight(value, f'task "{self._task}": its weight for limit "{self.limit.name}"')


def job_shares(
    limits: Sequence[TaskLimit], arguments: dict[str, Any], weight: int | None
) -> list[LimitShare]:
    """The shares that a job takes of the limits of its task.

    The `weight` of the call counts for the limits to which the task gives a weight, and for all of them if it
    gives none.
    """
    if weight is None:
        return [limit.share(arguments) for limit in limits]
    for_all = not any(limit.has_weight for limit in limits)
    return [limit.share(arguments, weight if for_all or limit.has_weight else None) for limit in limits]


def check_weight(value: object, what: str) -> int:
    """A weight, rounded up to a whole number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_COUNT:  # type: ignore[operator]
        raise ArgumentsError(f"{what} must be a number from 0 to {MAX_COUNT:,}, not {value!r}")
    return -int(-value // 1)  # type: ignore[operator]


def task_limits(given: LimitArgument | None, signature: Signature) -> tuple[TaskLimit, ...]:
    """The limits of a task, in the order in which every worker asks for them."""
    if given is None:
        return ()
    uses = [given] if isinstance(given, Limit | LimitUse) else list(given)
    found: dict[str, TaskLimit] = {}
    for one in uses:
        if not isinstance(one, Limit | LimitUse):
            raise DeclarationError(
                f'task "{signature.name}": limit={one!r}: give a qbull.Limit, limit.use(…), or a list of them'
            )
        use = one if isinstance(one, LimitUse) else LimitUse(one)
        if use.limit.name in found:
            raise DeclarationError(f'task "{signature.name}": limit "{use.limit.name}" is there twice')
        found[use.limit.name] = TaskLimit(use, signature)
    return tuple(found[name] for name in sorted(found))


def declared_values(limit: Limit) -> str:
    """The values of a limit in one line. Two declarations of a limit are the same if these are."""
    values = {"rate": limit.rate and f"{limit.rate.count}/{limit.rate.per:g}"}
    values |= {name: getattr(limit, name) for name in ("concurrency", "daily")}
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def check_one_declaration(known: dict[str, Limit], limits: Sequence[TaskLimit]) -> None:
    """Refuse a limit that the same app has declared with other values, and remember new ones."""
    for one in limits:
        before = known.setdefault(one.limit.name, one.limit)
        if before != one.limit:
            raise DeclarationError(
                f'limit "{before.name}": declared as {declared_values(before)} and as '
                f"{declared_values(one.limit)}; keep one qbull.Limit and import it"
            )


def limit_need(limit: str, key: str) -> str:
    """The need of a parked job that waits for a limit, as it is stored."""
    return f"{LIMIT_NEED_MARK}{limit}\n{key}"


def limit_in_need(need: str) -> tuple[str, str] | None:
    """The limit and the key of a stored need; None if it is a need of code."""
    if not need.startswith(LIMIT_NEED_MARK):
        return None
    name, _, key = need.removeprefix(LIMIT_NEED_MARK).partition("\n")
    return name, key
