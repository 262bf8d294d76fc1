"""Compressed: middleware that compresses large arguments and results."""

from __future__ import annotations

from qbull.core import wrapped_payload
from qbull.errors import ConfigError
from qbull.middleware import Middleware


class Compressed(Middleware):
    """Compresses large arguments and results, if that makes them smaller: `Compressed(over=1024)`.

    Every process of this release or a newer one can read them, whatever its settings are.

    Args:
        over: the size in bytes up to which they stay as they are.
        level: 1 (fast) to 9 (small).
    """

    def __init__(self, *, over: int = 1024, level: int = 6) -> None:
        if over < 0:
            raise ConfigError(f"Compressed(over={over}): must not be negative")
        if not 1 <= level <= 9:
            raise ConfigError(f"Compressed(level={level}): give 1 (fast) to 9 (small)")
        self.over = over
        self.level = level

    def encode(self, content: bytes, binding: bytes) -> bytes:
        """Compress the content if it is large enough and becomes smaller.

        Args:
            content: the payload or the result.
            binding: its context, which compression does not need.
        """
        if len(content) <= self.over:
            return content
        smaller = wrapped_payload.compress(content, self.level)
        return smaller if len(smaller) < len(content) else content
