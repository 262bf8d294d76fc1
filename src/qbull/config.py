"""Settings: frozen value objects that check themselves. environment.py reads some of them from variables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

import msgspec

from qbull.core.alerts import Alert
from qbull.core.durability import DURABILITIES, Durability
from qbull.core.ids import check_name
from qbull.core.layout import MAX_PARTITIONS
from qbull.core.rate import Rate
from qbull.core.record import DEFAULT_MAX_CRASHES, MAX_RECORDED_CRASHES, REPORT_ALL_FLAG
from qbull.core.retry import Retry
from qbull.core.route import PARTITION_LANE
from qbull.core.streams import DEFAULT_STREAM_LIMITS, StreamLimits
from qbull.errors import MAX_COUNT, MAX_DELAY_SECONDS, ConfigError, quoted_choices

Order = Literal["key", "partition"]
OnFailed = Literal["continue", "halt"]

MIN_IDLE_SECONDS = 0.5
"""The shortest time without a heartbeat after which a worker may count as dead."""
_PREFIX_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,100}")


@dataclass(frozen=True)
class Keep:
    """How long finished jobs stay: by count, by age in seconds, or both.

    By default completed jobs stay for a day, at most 10,000; failed jobs for 30 days, at most 100,000.

    Args:
        completed: maximum number of completed jobs.
        failed: maximum number of failed jobs.
        completed_for: seconds that a completed job stays.
        failed_for: seconds that a failed job stays.
    """

    completed: int | None = None
    failed: int | None = None
    completed_for: float | None = None
    failed_for: float | None = None

    def __post_init__(self) -> None:
        for name in ("completed", "failed", "completed_for", "failed_for"):
            value = getattr(self, name)
            kinds = (int, float) if name.endswith("_for") else (int,)
            if value is None:
                continue
            if not isinstance(value, kinds) or isinstance(value, bool) or not value <= MAX_DELAY_SECONDS:
                raise ConfigError(f"Keep({name}={value!r}): give a number")
            if value < 0:
                raise ConfigError(f"Keep({name}={value}): must not be negative; 0 keeps none")
        if self.completed is None and self.completed_for is None:
            object.__setattr__(self, "completed", 10_000)
            object.__setattr__(self, "completed_for", 86_400)
        if self.failed is None and self.failed_for is None:
            object.__setattr__(self, "failed", 100_000)
            object.__setattr__(self, "failed_for", 30 * 86_400)


DEFAULT_KEEP = Keep()


@dataclass(frozen=True)
class Lane:
    """Limits for each key of a queue, over all workers.

    Args:
        limit: maximum number of jobs of a key that run at a time. Jobs that wait for a retry do not count.
        rate: maximum number of jobs of a key that start in a period.
    """

    limit: int = 1
    rate: Rate | None = None

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"Lane(limit={self.limit}): at least one job of a key must be allowed to run")
        check_rate(self.rate, "Lane")


class QueueSettings(msgspec.Struct, frozen=True):
    """The settings that a queue was declared with."""

    name: str
    partitions: int = 1
    order: Order | None = None
    concurrency: int = 5
    lane: Lane | None = None
    retry: Retry = msgspec.field(default_factory=lambda: Retry(delays=(1, 5, 15, 60, 300)))
    timeout: float | None = None
    keep: Keep = DEFAULT_KEEP
    on_failed: OnFailed = "continue"
    max_active: int | None = None
    rate: Rate | None = None
    track: bool = False
    alert: Alert | None = None
    confirm_order: bool = True
    stream: StreamLimits = DEFAULT_STREAM_LIMITS
    max_crashes: int = DEFAULT_MAX_CRASHES
    min_idle: float | None = None

    def __post_init__(self) -> None:
        check_name("queue", self.name)
        check_alert(self.alert, f'queue "{self.name}"')
        self._whole("partitions", self.partitions, MAX_PARTITIONS)
        self._whole("concurrency", self.concurrency)
        if self.max_active is not None:
            self._whole("max_active", self.max_active)
        self._whole("max_crashes", self.max_crashes, MAX_RECORDED_CRASHES)
        if self.min_idle is not None and not MIN_IDLE_SECONDS <= self.min_idle <= MAX_DELAY_SECONDS:
            self._refuse(f"min_idle={self.min_idle}: give seconds, at least {MIN_IDLE_SECONDS}, or None")
        check_rate(self.rate, f'queue "{self.name}"')
        if self.order is not None and self.order not in get_args(Order):
            self._refuse(f"order={self.order!r}: use {quoted_choices(get_args(Order))}, or None")
        if self.on_failed not in get_args(OnFailed):
            self._refuse(f"on_failed={self.on_failed!r}: use {quoted_choices(get_args(OnFailed))}")
        if self.order is not None and self.lane is not None and self.lane.limit > 1:
            self._refuse(
                f'order="{self.order}" runs one job at a time, Lane(limit={self.lane.limit}) more; '
                "choose one of them"
            )
        if self.on_failed == "halt" and self.order is None:
            self._refuse('on_failed="halt" stops an ordered lane; set order="key" or order="partition"')
        if self.timeout is not None and not 0 < self.timeout <= MAX_DELAY_SECONDS:
            self._refuse(f"timeout={self.timeout}: must be more than 0 seconds, or None")

    @property
    def lane_limit(self) -> int:
        """Jobs of one lane at a time; 0 if the queue has no lanes."""
        if self.order is not None:
            return 1
        return self.lane.limit if self.lane is not None else 0

    @property
    def suspect_crashes(self) -> int:
        """The number of crashes from which on a job runs alone, so that it cannot kill other jobs."""
        return max(self.max_crashes - 1, 1)

    @property
    def reports(self) -> int:
        """The flags of the reports that every job makes for PostgreSQL."""
        return REPORT_ALL_FLAG if self.track else 0

    @property
    def needs_key(self) -> bool:
        """Whether every job must have a key."""
        return self.order == "key"

    @property
    def has_single_lane(self) -> bool:
        """Whether all jobs of a partition share one lane, whatever their keys are."""
        match self.order:
            case "partition":
                return True
            case "key" | None:
                return False
            case _:
                assert_never(self.order)

    def lane_of(self, key_digest: bytes | None) -> bytes:
        """The lane that a job takes: none if the queue has no lanes, or the job has no key."""
        if self.has_single_lane:
            return PARTITION_LANE
        return key_digest if self.lane_limit and key_digest is not None else b""

    def _whole(self, what: str, value: int, most: int = MAX_COUNT) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            self._refuse(f"{what}={value!r}: give a whole number from 1 to {most:,}")

    def _refuse(self, fact: str) -> None:
        raise ConfigError(f'queue "{self.name}": {fact}')


def shortest_min_idle(queues: Iterable[QueueSettings], default: float) -> float:
    """Seconds without a heartbeat after which a worker of these queues counts as dead.

    A worker has one heartbeat for all its queues, so the queue that wants its jobs back first decides.
    """
    return min((default if one.min_idle is None else one.min_idle for one in queues), default=default)


def check_rate(value: object, of: str) -> None:
    if value is not None and not isinstance(value, Rate):
        raise ConfigError(f"{of}: rate={value!r}: give a rate, for example qbull.Rate(100, per=60)")


def check_alert(value: object, of: str) -> None:
    if value is not None and not isinstance(value, Alert):
        raise ConfigError(
            f"{of}: alert={value!r}: use True, False or for example qbull.Alert(stale_after=60)"
        )


def check_prefix(prefix: str, source: str = "prefix") -> str:
    # Deployments of earlier systems set "ceres:".
    prefix = prefix.rstrip(":")
    if not _PREFIX_PATTERN.fullmatch(prefix):
        raise ConfigError(
            f"{source}={prefix!r}: use 1 to 100 letters, digits, dots, colons, hyphens or underscores"
        )
    return prefix


def check_database(url: str, source: str = "database") -> str:
    """Check a PostgreSQL URL. The scheme may name a driver, as for SQLAlchemy."""
    scheme, there, rest = url.partition("://")
    if not there or scheme.partition("+")[0] not in ("postgres", "postgresql"):
        raise ConfigError(f"{source}: give postgresql://USER:PASSWORD@HOST:PORT/NAME")
    return f"postgresql://{rest}"


def check_durability(profile: str | None, source: str = "durability") -> Durability | None:
    if profile is not None and profile not in DURABILITIES:
        raise ConfigError(f"{source}={profile!r}: use one of {', '.join(DURABILITIES)}")
    return profile
