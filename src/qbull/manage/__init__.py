"""Work on jobs and queues that exist: search, bulk actions, live settings, repartitioning.

`manage.search` and the other modules that a queue uses are imported on first use: a program that only
enqueues, and a worker, need none of them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbull.manage import live_settings as live_settings
    from qbull.manage import repartition as repartition
    from qbull.manage import search as search
else:

    def __getattr__(name: str) -> object:
        if name in ("live_settings", "repartition", "search"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
