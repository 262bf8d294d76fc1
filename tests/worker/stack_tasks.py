"""Tasks that stay where a test can look at them; a process of `cpu=True` imports them by name."""

from __future__ import annotations

import time


def spin_in_process(seconds: float) -> None:
    grind(seconds)


def grind(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))
