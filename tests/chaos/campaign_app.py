"""The app of a campaign. Each kind of load declares its queue and tasks on it, in a module of `loads`.

A worker process serves all of them (campaign_worker.py). Everything is written down in CHAOS_DIRECTORY.
"""

from __future__ import annotations

import os
from pathlib import Path

from job_plan import ATTEMPTS

import qbull

HERE = Path(os.environ.get("CHAOS_DIRECTORY") or ".")
DATABASE = os.environ.get("CHAOS_DATABASE")
MENDED = str(HERE / "mended")
"""There while the other system, that some jobs need, is back."""
ENOUGH_JOBS, ENOUGH_STEPS = HERE / "enough-jobs", HERE / "enough-steps"
"""There when the campaign has had as many as it wants. Then their producers leave the machine to what is still wanted."""
LITTLE_BEHIND = 300
"""Unfinished jobs of the sequences with which durable tasks get most of the machine."""

app = qbull.App(
    os.environ.get("CHAOS_URL") or "redis://127.0.0.1:1/0",
    prefix="test",
    durability=os.environ.get("CHAOS_DURABILITY") or None,
    database=DATABASE,
)
RETRY = qbull.Retry(attempts=ATTEMPTS, backoff="fixed", delay=0.02)
KEEP = qbull.Keep(completed_for=120, failed=1_000_000)
"""Of the small loads: long enough for every call that is sent again; short enough for old partitions to go."""
KEEP_ALL = qbull.Keep(completed=1_000_000)
