"""How long the event loop of a worker may stand still, as the worker and its supervisor see it."""

from __future__ import annotations

LOOP_WARNING_SECONDS = 2.0
"""Seconds for which a task may block the event loop before the worker warns."""
LOOP_BLOCKED_SECONDS = 1.5
"""Seconds without a turn of its event loop after which other workers read the partitions of a worker."""
LOOP_TURN_SECONDS = 0.25
"""Seconds between two signs of life of the event loop, at most."""
