"""Unique: of the jobs that ask for the same thing within a window of time, only one counts.

The mode decides which one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from qbull.errors import MAX_DELAY_SECONDS, ConfigError, quoted_choices

UniqueMode = Literal["first", "last", "reschedule", "debounce", "after"]
DEFAULT_WINDOW_SECONDS = 86_400.0


class UniqueWindow(msgspec.Struct, frozen=True, gc=False):
    """Which calls ask for the same thing (`name`), which of them counts (`mode`), and for how long."""

    name: str
    mode: UniqueMode
    window_ms: int


@dataclass(frozen=True)
class Unique:
    """`Unique(window=60, by=("user_id",))`: within 60 seconds, one job for each user.

    Args:
        window: the length of the window in seconds. Only mode "after" has a default: one day.
        by: the arguments that identify the same thing; all arguments if None.
        mode: which call counts. "first": later calls add nothing. "last": the waiting job takes the newest
            arguments. "reschedule": the same, and the newest delay. "debounce": the newest arguments, and
            the job runs after a window without calls. "after": one job runs, one waits for its end.
    """

    window: float | None = None
    by: tuple[str, ...] | None = None
    mode: UniqueMode = "first"

    def __post_init__(self) -> None:
        if self.mode not in get_args(UniqueMode):
            raise ConfigError(f"Unique(mode={self.mode!r}): use {quoted_choices(get_args(UniqueMode))}")
        if self.window is None:
            if self.mode != "after":
                raise ConfigError(
                    f'Unique(mode="{self.mode}"): give window=, the length of its window in seconds'
                )
            object.__setattr__(self, "window", DEFAULT_WINDOW_SECONDS)
        elif not isinstance(self.window, int | float) or not 0 < self.window <= MAX_DELAY_SECONDS:
            raise ConfigError(f"Unique(window={self.window!r}): must be more than 0 seconds")
        if isinstance(self.by, str):
            raise ConfigError(f'Unique(by="{self.by}"): give a tuple of names, for example by=("{self.by}",)')
        if self.by is not None:
            object.__setattr__(self, "by", tuple(self.by))

    @property
    def window_ms(self) -> int:
        return max(int((self.window or 0) * 1000), 1)

    def of(self, task: str, payload: bytes, key: str | None) -> UniqueWindow:
        """The window of a call.

        Args:
            task: the name of the task.
            payload: the arguments, as JSON.
            key: the key of its lane, if it has one.
        """
        return UniqueWindow(self.name(task, payload, key), self.mode, self.window_ms)

    def name(self, task: str, payload: bytes, key: str | None) -> str:
        """A name that is the same for calls that ask for the same thing. The parameters are those of `of`:
        task, payload and key.
        """
        arguments = msgspec.json.decode(payload)
        values = arguments if self.by is None else [arguments[name] for name in self.by]
        text = msgspec.json.encode([task, key, values], order="deterministic")
        return hashlib.sha256(text).hexdigest()[:32]
