"""Shapes of shared limits: their values, their use, and changes to them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from msgspec import UNSET, Meta, UnsetType

from qbull.core.limit_status import LimitStatus
from qbull.views.live_settings import RateBody
from qbull.views.shape import AnswerShape, Instant, Shape, view_of

LimitCount = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class NewLimitBody(Shape, kw_only=True):
    """Values of a limit to change for all workers; others stay. null is no limit."""

    rate: RateBody | UnsetType | None = UNSET
    concurrency: LimitCount | UnsetType | None = UNSET
    daily: LimitCount | UnsetType | None = UNSET


class LimitResetQuery(Shape, kw_only=True):
    """The value to reset to that of the code; all values if none is named."""

    setting: Literal["rate", "concurrency", "daily"] | None = None


class LimitKeyView(Shape, kw_only=True):
    """The use of a limit by the jobs of one key. `spent` is 0 if the limit has no daily budget."""

    key: str
    running: int
    used: int
    spent: int
    waiting: int


class LimitView(Shape, kw_only=True):
    """A shared limit. `running` and `spent` are over all keys, and `used` is the weight in the last window of
    the rate of the jobs without a key. `waiting` jobs wait for it since `since`; `queues` has their number
    by queue. `keys` are those with the most use. `changed` names the values that were changed at run time.
    `granted` and `returned` are the weights since the limit exists.
    """

    name: str
    rate: RateBody | None
    concurrency: int | None
    daily: int | None
    changed: list[str]
    running: int
    used: int
    spent: int
    waiting: int
    since: Instant | None
    queues: dict[str, int]
    keys: list[LimitKeyView]
    granted: int
    returned: int

    @classmethod
    def of(cls, status: LimitStatus, *, shows_keys: bool = True) -> Self:
        """A limit. Keys come from the arguments of jobs, so some callers must not see them."""
        rate = status.rate
        return view_of(
            cls,
            status,
            rate=None if rate is None else RateBody(count=rate.count, per=rate.per),
            changed=list(status.changed),
            queues=dict(status.queues),
            keys=[view_of(LimitKeyView, one) for one in status.keys] if shows_keys else [],
        )


class LimitsView(AnswerShape, kw_only=True):
    """All shared limits that workers have declared, by name."""

    limits: list[LimitView]


class ChangedLimitView(AnswerShape, kw_only=True):
    """A shared limit after a change."""

    limit: LimitView
