"""`from rq.repeat import Repeat`, as RQ's documentation imports it."""

from __future__ import annotations

from qbull.compat.rq.run import Repeat

__all__ = ["Repeat"]
