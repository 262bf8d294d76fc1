"""Shapes of live settings: the settings in force for a queue, and changes to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from qbull.core.retry import Backoff
from qbull.store.verbs.live_settings import LIVE_SETTING_TYPES, LiveSettingChange, LiveSettings
from qbull.views.shape import MAX_API_DURATION_SECONDS, DurationSeconds, Instant, Shape, Timestamp, view_of

RetainedCount = Annotated[int, Meta(ge=0, le=316_224_000)]


class RateBody(Shape, kw_only=True):
    """At most `count` starts in any `per` seconds."""

    count: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    per: Annotated[float, Meta(ge=0.1, le=2_678_400)] = 1.0


class RetryBody(Shape, kw_only=True):
    """A retry policy: explicit `delays`, or `attempts` with a `backoff` from `delay` up to `maxDelay`. In
    seconds.
    """

    delays: list[DurationSeconds] | None = None
    attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    backoff: Backoff | None = None
    delay: DurationSeconds | None = None
    max_delay: DurationSeconds | None = None
    jitter: Annotated[float, Meta(ge=0, le=1)] | None = None


class KeepBody(Shape, kw_only=True):
    """How long finished jobs stay in each partition: at most so many, and for so many seconds."""

    completed: RetainedCount | None = None
    failed: RetainedCount | None = None
    completed_for: DurationSeconds | None = None
    failed_for: DurationSeconds | None = None


class NewSettingsBody(Shape, kw_only=True):
    """Settings to change for all workers; others stay. null removes a limit."""

    concurrency: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET
    max_active: Annotated[int, Meta(ge=1, le=1000000000)] | UnsetType | None = UNSET
    rate: RateBody | UnsetType | None = UNSET
    retry: RetryBody | UnsetType = UNSET
    timeout: Annotated[float, Meta(gt=0, le=MAX_API_DURATION_SECONDS)] | UnsetType | None = UNSET
    keep: KeepBody | UnsetType = UNSET


class ResetQuery(Shape, kw_only=True):
    """The setting to reset to its value in the code; all settings if none is named."""

    setting: Literal["concurrency", "max_active", "rate", "retry", "timeout", "keep"] | None = None


class ChangedSettingView(Shape, kw_only=True):
    value: Any
    by: str
    at: Instant


class SettingChangeView(Shape, kw_only=True):
    """A change of a setting. null stands for the value in the code."""

    at: Instant
    by: str
    setting: str
    before: Any
    after: Any


class SettingsShape(Shape, kw_only=True):
    """The settings in force for a queue, which of them were changed at run time, and the last changes, newest
    first.
    """

    queue: str
    paused: bool
    settings: dict[str, Any]
    changed: dict[str, ChangedSettingView]
    history: list[SettingChangeView]

    @classmethod
    def of(cls, queue: str, live: LiveSettings, changes: Sequence[LiveSettingChange], **more: Any) -> Self:
        """The settings of a queue. Rates and retries become plain JSON values."""
        return view_of(
            cls,
            live,
            queue=queue,
            settings={name: msgspec.to_builtins(getattr(live.settings, name)) for name in LIVE_SETTING_TYPES},
            changed={
                name: view_of(ChangedSettingView, one, value=msgspec.to_builtins(one.value))
                for name, one in live.changed.items()
            },
            history=[
                view_of(
                    SettingChangeView,
                    one,
                    before=msgspec.to_builtins(one.before),
                    after=msgspec.to_builtins(one.after),
                )
                for one in changes
            ],
            **more,
        )


class SettingsView(SettingsShape, kw_only=True):
    """The settings in force for a queue, which of them were changed at run time, and the last changes, newest
    first.
    """

    success: bool = True
    timestamp: Timestamp
