"""A worker in the process of an app: `app.worker()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qbull.core.demand import make_offer
from qbull.worker.assignment import Assignment, with_offer
from qbull.worker.worker import Worker

if TYPE_CHECKING:
    from qbull.app import App


def make_worker(
    app: App,
    assignments: Sequence[Assignment],
    labels: Mapping[str, str] | None,
    resources: Mapping[str, int] | None,
) -> Worker:
    """A worker for these queues. Labels and resources that are None come from the environment."""
    own = app.environment.offer
    offer = make_offer(
        own.labels if labels is None else labels, own.resources if resources is None else resources
    )
    return Worker(
        app._make_store,
        with_offer(assignments, offer),
        sharing=app.environment.worker_sharing(),
        min_idle=app.environment.min_idle,
        alongside=app._alongside(),
    )
