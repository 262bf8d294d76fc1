"""What the worker processes of a campaign serve: all kinds of load. `qbull worker campaign_worker:app`."""

from __future__ import annotations

from campaign_app import DATABASE, app
from loads import SMALL_LOADS, same_ids, schedules, sequences

import qbull.worker.unpark

__all__ = ["app"]

# On a busy machine a pod can take longer than the usual 30 s to start.
qbull.worker.unpark.MISFIT_GRACE_SECONDS = 120.0

LOADS = (sequences, same_ids, schedules, *SMALL_LOADS)
schedules.declare_schedules()

if DATABASE:
    from loads import transfers

    transfers.declare(app, DATABASE)
