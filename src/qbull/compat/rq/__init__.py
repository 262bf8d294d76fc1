"""qbull for code that was written for RQ: `from qbull.compat.rq import Queue, Retry, Job, job`.

docs/guides/from_rq.md lists the supported calls and the differences. Jobs made here are ordinary qbull jobs.
"""

from __future__ import annotations

from typing import Any

from qbull.compat.refusal import refuse_name
from qbull.compat.rq.current import get_current_job
from qbull.compat.rq.decorators import job
from qbull.compat.rq.dependency import Dependency
from qbull.compat.rq.group import Group
from qbull.compat.rq.instead import RQ_MODULE_HINTS
from qbull.compat.rq.job import Job, cancel_job, requeue_job
from qbull.compat.rq.queue import Queue
from qbull.compat.rq.retry import Retry
from qbull.compat.rq.run import Callback, Repeat
from qbull.compat.rq.worker import SimpleWorker, Worker

__all__ = [
    "Callback",
    "Dependency",
    "Group",
    "Job",
    "Queue",
    "Repeat",
    "Retry",
    "SimpleWorker",
    "Worker",
    "cancel_job",
    "get_current_job",
    "job",
    "requeue_job",
]


def __getattr__(name: str) -> Any:
    refuse_name(__name__, name, RQ_MODULE_HINTS)
