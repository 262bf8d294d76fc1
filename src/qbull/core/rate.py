"""Rate: how many starts there may be in any window of time.

Between the moment in which the server grants a start and the first line of the task lies a little time,
different for each. So a grant is good for a short while only, its slack, and the server counts over windows
that are longer by that: then no window of `per` seconds can have more starts than it should, wherever it
begins.
"""

from __future__ import annotations

from dataclasses import dataclass

from qbull.errors import MAX_COUNT, ConfigError

MAX_RATE_WINDOW_SECONDS = 31 * 86_400


@dataclass(frozen=True)
class Rate:
    """`Rate(100, per=60)`: at most 100 starts in any 60 seconds."""

    count: int
    per: float = 1.0

    def __post_init__(self) -> None:
        if (
            not isinstance(self.count, int)
            or isinstance(self.count, bool)
            or not 1 <= self.count <= MAX_COUNT
        ):
            raise ConfigError(
                f"Rate({self.count!r}, per={self.per!r}): give a whole number of starts from 1 to {MAX_COUNT:,}"
            )
        if not isinstance(self.per, int | float) or not 0.1 <= self.per <= MAX_RATE_WINDOW_SECONDS:
            raise ConfigError(
                f"Rate({self.count}, per={self.per!r}): give seconds from 0.1 to {MAX_RATE_WINDOW_SECONDS:,}"
            )

    def __str__(self) -> str:
        return f"{self.count} in {self.per:g} s"

    @property
    def slack(self) -> float:
        """Seconds within which a granted start must be made."""
        return min(max(0.03 * self.per, 0.02), 2.0)

    @property
    def window_ms(self) -> int:
        """The milliseconds that the server counts over: the window, the slack, and one for its clock."""
        return int((self.per + self.slack) * 1000) + 2

    @property
    def ahead_ms(self) -> int:
        """How far ahead the server grants starts, so that the way there and back costs none of the window."""
        return int(min(max(0.05 * self.per, 0.05), 1.0) * 1000)
