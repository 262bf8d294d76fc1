"""Allocator: the memory allocator of the embedded server, instead of the one of the C library.

With 1,000,000 jobs waiting, the C library hands out free pieces that are scattered over all of the server's
memory, and a job costs twice as much of the server's time as with 10,000. jemalloc and tbbmalloc keep that
cost flat: docs/decisions/0016-an-allocator.md.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform

ALLOCATOR_PACKAGE = "tbb"  # From `pip install "qbull[allocator]"`.
LIBRARY_FOLDERS = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


def preload() -> str:
    """The value of LD_PRELOAD: the machine's jemalloc or the extra's tbbmalloc; empty without both."""
    paths = (os.path.join(folder, "libjemalloc.so.2") for folder in LIBRARY_FOLDERS)
    return next(filter(os.path.exists, paths), None) or _packaged_allocator()


def _packaged_allocator() -> str:
    # The second needs the first, but does not name its path.
    wanted = ("libtbbmalloc.so.2", "libtbbmalloc_proxy.so.2")
    try:
        files = importlib.metadata.files(ALLOCATOR_PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        return ""
    paths = {file.name: os.path.abspath(file.locate()) for file in files if file.name in wanted}
    if len(paths) < len(wanted) or not all(map(os.path.exists, paths.values())):
        return ""
    return ":".join(paths[name] for name in wanted)
