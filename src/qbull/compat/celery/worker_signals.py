"""Signals of a worker: worker_init, worker_process_init, worker_ready, worker_shutdown, setup_logging."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qbull.compat.celery import signals

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery


def announce_worker(app: Celery) -> None:
    """Send the signals of a worker, in each of its processes. Without receivers nothing is added."""
    if signals.setup_logging.receivers and not app.has_set_up_logging:
        app.has_set_up_logging = True
        signals.setup_logging.send(
            None, loglevel=logging.INFO, logfile=None, format="%(message)s", colorize=False
        )
    if not any(signal.receivers for signal in signals.WORKER_SIGNALS):
        return

    def celery_worker_signals() -> Iterator[None]:
        for signal in (signals.worker_init, signals.worker_process_init, signals.worker_ready):
            signal.send(app)
        yield
        ends = (signals.worker_shutting_down, signals.worker_process_shutdown, signals.worker_shutdown)
        for signal in ends:
            signal.send(app)

    app.lifespan(cpu=False)(celery_worker_signals)
