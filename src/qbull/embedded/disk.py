"""Disk: check that the embedded server has room to write.

The check runs before a start, if the server does not stay up, and in `qbull doctor`.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from pathlib import Path

from qbull.errors import EmbeddedError

log = logging.getLogger("qbull.embedded")

MIN_FREE_DISK_BYTES = 1 << 20
"""Bytes of free disk below which the server cannot write."""
LOW_FREE_DISK_BYTES = 1 << 28
"""Bytes of free disk below which a warning is logged."""


def refuse_full_disk(directory: Path) -> None:
    """Check before a start: a server that cannot write ends at once, and cannot even log the reason."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(directory).free
        if free < MIN_FREE_DISK_BYTES:
            raise EmbeddedError(
                f"{directory}: its disk is full ({_megabytes(free)} free), so that no server is started: "
                "make room, then start again"
            )
        if free < LOW_FREE_DISK_BYTES:
            log.warning(
                "%s: its disk has %s left; make room before nothing can be enqueued",
                directory,
                _megabytes(free),
            )


def disk_hint(directory: Path) -> str:
    """The message if the disk has no room for new jobs; empty if it has."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(directory).free
        if free < MIN_FREE_DISK_BYTES:
            return f"; its disk is full ({_megabytes(free)} free): make room, work goes on by itself then"
    return ""


def _megabytes(free: int) -> str:
    return f"{free / 1e6:.1f} MB"
