"""Retry: how often a job is tried, and how long it waits in between."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

from qbull.errors import MAX_DELAY_SECONDS, ConfigError, quoted_choices

RETRY_HEADER = "qbull.retry"
"""The header of a job that brings a retry policy of its own, from another system."""

Backoff = Literal["exponential", "fixed"]
"""How the wait grows from retry to retry. A new member needs only its line in `_backoff_wait`."""


@dataclass(frozen=True)
class Retry:
    """The retry policy of a job.

    `Retry(delays=(1, 5, 15))` runs a job up to 4 times. `Retry(attempts=3, delay=5)` waits 5 s, then 10 s.

    Args:
        attempts: the number of runs, the first one included; by default one more than there are delays.
        backoff: how the wait grows from retry to retry.
        delay: seconds before the first retry.
        max_delay: the longest wait in seconds.
        jitter: a share of each wait; 0.1 spreads it by up to 10 % either way.
        delays: the waits in seconds, instead of a backoff; the last one counts for all further attempts.
    """

    attempts: int = 0
    backoff: Backoff = "exponential"
    delay: float = 1.0
    max_delay: float = 3600.0
    jitter: float = 0.0
    delays: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "delays", tuple(self.delays))
        if self.attempts == 0:
            object.__setattr__(self, "attempts", len(self.delays) + 1)
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigError(
                f"Retry(attempts={self.attempts}): a job runs at least once; use attempts=1 for no retries"
            )
        if self.backoff not in get_args(Backoff):
            words = quoted_choices(get_args(Backoff))
            raise ConfigError(f"Retry(backoff={self.backoff!r}): use {words}, or give delays=(…)")
        for wait in (self.delay, self.max_delay, *self.delays):
            if not isinstance(wait, int | float) or not 0 <= wait <= MAX_DELAY_SECONDS:
                raise ConfigError(
                    f"Retry: a delay of {wait!r}: give seconds from 0, a delay must not be negative"
                )
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"Retry(jitter={self.jitter}): give a share from 0 to 1")

    def wait_before(self, attempt: int) -> float:
        """Seconds between the failed attempt and attempt number `attempt` (2 is the first retry)."""
        nth = max(attempt - 2, 0)
        if self.delays:
            wait = self.delays[min(nth, len(self.delays) - 1)]
        else:
            wait = min(self._backoff_wait(nth), self.max_delay)
        if self.jitter:
            wait *= random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - spreading, not secrecy
        return wait

    def _backoff_wait(self, nth: int) -> float:
        """Seconds before retry number `nth`, counted from 0, without an upper bound."""
        match self.backoff:
            case "exponential":
                return self.delay * 2.0 ** min(nth, 64)
            case "fixed":
                return self.delay
            case _:
                assert_never(self.backoff)


def retry_header(attempts: int, waits: Sequence[float]) -> str:
    """A policy as the value of RETRY_HEADER. The last of the waits, in seconds, is repeated."""
    waits = list(waits)
    while len(waits) > 1 and waits[-1] == waits[-2]:
        waits.pop()
    return f"{attempts} {','.join(f'{wait:g}' for wait in waits)}"


def retry_in(headers: Mapping[str, str] | None) -> Retry | None:
    """The policy that a job brings with it; None if it has none, or one that cannot be read."""
    text = headers.get(RETRY_HEADER) if headers else None
    if text is None:
        return None
    try:
        attempts, _, waits = text.partition(" ")
        return Retry(int(attempts), delay=0.0, delays=tuple(float(wait) for wait in waits.split(",") if wait))
    except (ValueError, ConfigError):
        return None
