"""Signals of Celery: functions that are called before and after a task runs or is enqueued.

Errors in a receiver are logged, as in Celery.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger("qbull")

Receiver = Callable[..., Any]


class Signal:
    """A moment at which receivers are called with `sender` and the values of the signal.

    Args:
        name: The name of the signal.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.receivers: list[tuple[Any, Receiver, Any]] = []

    def __repr__(self) -> str:
        return f"<Signal: {self.name}>"

    def connect(
        self,
        receiver: Receiver | None = None,
        *,
        sender: Any = None,
        weak: bool = True,
        dispatch_uid: Any = None,
        retry: bool = False,
    ) -> Any:
        """Call a function at each signal; `@signal.connect` or `@signal.connect(sender=…)`.

        Args:
            receiver: The function. It accepts any keyword arguments.
            sender: Only for signals of this task.
            weak: Has no effect: the function is kept.
            dispatch_uid: A name. A second function with the same name is not added.
            retry: Has no effect: a receiver that fails is not called again.
        """

        def add(function: Receiver) -> Receiver:
            key = dispatch_uid or (function, _name_of(sender))
            if all(key != known for known, _, _ in self.receivers):
                self.receivers.append((key, function, sender))
            return function

        return add if receiver is None else add(receiver)

    def disconnect(
        self, receiver: Receiver | None = None, *, sender: Any = None, dispatch_uid: Any = None
    ) -> None:
        """Do not call a function any more.

        Args:
            receiver: The function.
            sender: The sender that it was connected with.
            dispatch_uid: The name that it was connected with.
        """
        key = dispatch_uid or (receiver, _name_of(sender))
        self.receivers = [each for each in self.receivers if each[0] != key]

    def send(self, sender: Any, **values: Any) -> list[tuple[Receiver, Any]]:
        """Call the receivers. Returns each with its answer or its error.

        Args:
            sender: The task, or its name.
            values: The values of the signal.
        """
        answers: list[tuple[Receiver, Any]] = []
        for _, receiver, only in list(self.receivers):
            if only is not None and _name_of(only) != _name_of(sender):
                continue
            try:
                answers.append((receiver, receiver(signal=self, sender=sender, **values)))
            except Exception as error:
                log.exception("signal %s: %r failed", self.name, receiver)
                answers.append((receiver, error))
        return answers

    send_robust = send


def _name_of(sender: Any) -> Any:
    return getattr(sender, "name", sender)


before_task_publish = Signal("before_task_publish")
after_task_publish = Signal("after_task_publish")
task_prerun = Signal("task_prerun")
task_postrun = Signal("task_postrun")
task_success = Signal("task_success")
task_failure = Signal("task_failure")
task_retry = Signal("task_retry")
worker_init = Signal("worker_init")
worker_process_init = Signal("worker_process_init")
worker_ready = Signal("worker_ready")
worker_shutting_down = Signal("worker_shutting_down")
worker_process_shutdown = Signal("worker_process_shutdown")
worker_shutdown = Signal("worker_shutdown")
setup_logging = Signal("setup_logging")

WORKER_SIGNALS = (
    worker_init,
    worker_process_init,
    worker_ready,
    worker_shutting_down,
    worker_process_shutdown,
    worker_shutdown,
)
CELERY_SIGNAL_HINTS = {
    "task_received": "use task_prerun; jobs that wait are on the server",
    "task_revoked": "use qbull.Middleware: settled() gets cancelled jobs",
    "task_rejected": "use qbull.Middleware: settled() gets failed jobs",
    "task_unknown": "jobs of unknown tasks are parked: qbull jobs QUEUE --state parked",
    "task_internal_error": "use task_failure",
    "celeryd_init": "use worker_init",
    "celeryd_after_setup": "use worker_init",
    "after_setup_logger": "use setup_logging, or configure logging in the module of the app",
    "after_setup_task_logger": "use setup_logging, or configure logging in the module of the app",
    "beat_init": "workers run the schedules; use worker_init",
    "beat_embedded_init": "workers run the schedules; use worker_init",
    "heartbeat_sent": "qbull workers shows the heartbeats",
    "eventlet_pool_started": "there are no green threads; use async def",
    "import_modules": "name modules with Celery(include=[…])",
    "user_preload_options": "use options of your own program",
}
"""Signals that are not sent."""


def __getattr__(name: str) -> Any:
    from qbull.compat.refusal import refuse_name

    refuse_name(__name__, name, CELERY_SIGNAL_HINTS)
