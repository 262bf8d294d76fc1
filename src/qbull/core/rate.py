"""Rate: the maximum number of starts in any window of time.

Between the server's grant of a start and the first line of the task a little time passes, different for each
job. So a grant is valid only for a short while, its slack, and the server counts over windows that are longer
by the slack. Then no window of `per` seconds has too many starts, wherever it starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from qbull.errors import MAX_COUNT, ConfigError

MAX_RATE_WINDOW_SECONDS = 31 * 86_400


@dataclass(frozen=True)
class Rate:
    """`Rate(100, per=60)`: at most 100 starts in any 60 seconds.

    Args:
        count: the maximum number of starts in a window.
        per: the length of the window in seconds, 1 by default.
    """

    count: int
    per: float = 1.0

    def __post_init__(self) -> None:
        if (
            not isinstance(self.count, int)
            or isinstance(self.count, bool)
            or not 1 <= self.count <= MAX_COUNT
        ):
            raise ConfigError(
                f"Rate({self.count!r}, per={self.per!r}): "
                f"give a whole number of starts from 1 to {MAX_COUNT:,}"
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
        """How far ahead the server grants starts, so that the round trip costs none of the window."""
        return int(min(max(0.05 * self.per, 0.05), 1.0) * 1000)
