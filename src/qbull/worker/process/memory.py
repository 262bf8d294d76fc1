"""Memory: what a worker process no longer needs goes back to the machine; what it always needs is left alone.

The C library keeps what is freed. Jobs come and go in all sizes and leave holes between what stays, so that a
worker under steady load grew by 3 MB an hour without holding anything more, and one that had once had a large
job stayed as large as that. Once in a while the pages of these holes are given back.

The garbage collector looks at all objects again and again, and most of them are the code of the app. Without
these, a full collection takes less than a millisecond instead of a tenth of a second.

Only for processes that are ours: `qbull worker` starts this in its children.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable

MEMORY_TRIM_SECONDS = 60.0
"""Seconds between two trims. One of 10 MB takes under a millisecond, and other threads go on meanwhile."""


def freeze_loaded_objects() -> None:
    """Exempt the objects that exist by now, mostly the code of the app, from garbage collection."""
    gc.freeze()


async def trim_memory() -> None:
    """Return unused memory to the system from time to time, if the C library can."""
    trim = _malloc_trim()
    while trim is not None:
        await asyncio.sleep(MEMORY_TRIM_SECONDS)
        await asyncio.to_thread(trim, 0)


def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; other C libraries have none, and some Pythons are built without ctypes."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
        return trim
    return None
