"""`app.control`: revoke jobs. The command line and the REST API do the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qbull.compat.celery.result import AsyncResult
from qbull.compat.celery.support import UNLISTED_NAME, WORKS, Support, refused
from qbull.compat.refusal import refuse_attribute

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery

CELERY_CONTROL_HINTS = {
    "inspect": "use the command line: qbull workers, and qbull jobs QUEUE --state active",
    "ping": "use the command line: qbull workers",
    "broadcast": "workers read their settings from the server: qbull configure QUEUE",
    "purge": "use the command line: qbull purge QUEUE",
    "discard_all": "use the command line: qbull purge QUEUE",
    "rate_limit": "use the command line: qbull configure QUEUE --rate 100/60",
    "time_limit": "set it on the task: @app.task(time_limit=…)",
    "shutdown": "stop the process: it finishes its jobs after SIGTERM",
    "pool_restart": "restart the process: it finishes its jobs after SIGTERM",
    "pool_grow": "use the command line: qbull configure QUEUE --concurrency N",
    "pool_shrink": "use the command line: qbull configure QUEUE --concurrency N",
    "autoscale": "use the command line: qbull configure QUEUE --concurrency N",
    "add_consumer": "name the queues of a worker: qbull worker MODULE:APP --queues NAME",
    "cancel_consumer": "use the command line: qbull pause QUEUE",
    "enable_events": "events are always on: queue.events()",
    "disable_events": "events are always on: queue.events()",
    "revoke_by_stamped_headers": "use the command line: qbull cancel QUEUE ID",
}
"""Methods of `app.control` that are not supported."""


class Control:
    """`app.control` of Celery.

    Args:
        app: The app.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, CELERY_CONTROL_HINTS)

    def revoke(self, task_id: str | Iterable[str], terminate: bool = False, **others: Any) -> None:
        """Cancel a job, or several.

        Args:
            task_id: The id of the job, or several ids.
            terminate: Whether to stop a running job too. By default it continues.
            others: As for `AsyncResult.revoke`.
        """
        for each in [task_id] if isinstance(task_id, str) else list(task_id):
            AsyncResult(each, self._app).revoke(terminate, **others)

    def terminate(self, task_id: str | Iterable[str], **others: Any) -> None:
        """Cancel a job, also if it runs.

        Args:
            task_id: The id of the job, or several ids.
            others: As for `AsyncResult.revoke`.
        """
        self.revoke(task_id, terminate=True, **others)


def control_support(name: str) -> Support:
    """How far a method of `app.control` is kept."""
    return WORKS if hasattr(Control, name) else refused(CELERY_CONTROL_HINTS.get(name, UNLISTED_NAME))
