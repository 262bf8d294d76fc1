"""Log records from the processes of `cpu=True` tasks.

Such a process writes no log itself. It sends each record to its worker, whose handlers write it as they write
all others. So a job is logged in one format and one place, wherever it runs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextvars import Context

from qbull.observe.log import exception_text, extra_of, to_json
from qbull.worker.current import RunningJob, running

LEVELS_REFRESH_SECONDS = 0.25
"""Seconds after which a changed level of a logger reaches the processes of the pool, at the latest."""


class ForwardingHandler(logging.Handler):
    """In a process of the pool: sends records to the worker with `tell`."""

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        super().__init__()
        self._tell = tell
        self._levels: Mapping[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tell(_encode(record))
        except Exception:
            self.handleError(record)

    def take_over(self) -> None:
        """Replace the handlers that the import of a task has installed: the worker has the same ones."""
        root = logging.getLogger()
        for logger in root.manager.loggerDict.values():
            if isinstance(logger, logging.Logger) and logger.handlers:
                logger.handlers[:] = [] if logger.propagate else [self]
        root.handlers[:] = [self]

    def apply_levels(self, levels: Mapping[str, int]) -> None:
        """Use the levels of the worker's loggers, as `LoggerLevels` gives them."""
        if levels != self._levels:
            self._levels = levels
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


class LoggerLevels:
    """The levels that are set in this process, by the name of their logger.

    Looking at all loggers takes longer than a short job, so `now` does it a few times in a second only. It
    returns the same object until a level changes.
    """

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}
        self._read_at = -LEVELS_REFRESH_SECONDS

    def now(self) -> dict[str, int]:
        at = time.monotonic()
        if at - self._read_at >= LEVELS_REFRESH_SECONDS:
            self._read_at = at
            levels = _logger_levels()
            if levels != self._levels:
                self._levels = levels
        return self._levels


def _logger_levels() -> dict[str, int]:
    root = logging.getLogger()
    loggers = list(root.manager.loggerDict.items())
    set_levels = {
        name: logger.level for name, logger in loggers if isinstance(logger, logging.Logger) and logger.level
    }
    return {"": root.level} | set_levels


def handle_forwarded(data: bytes, job: RunningJob) -> None:
    """In the worker: give a record of a process to the handlers here, as a line of the job that logged it."""
    fields = json.loads(data)
    logged_in_job = fields.pop("qbull_job") == job.id.hex()
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if not logger.isEnabledFor(record.levelno):
        return
    if logged_in_job:
        logger.handle(record)
    else:
        Context().run(logger.handle, record)


def _encode(record: logging.LogRecord) -> bytes:
    job = running.get()
    fields = extra_of(record) | {
        "qbull_job": job.id.hex() if job is not None else "",
        "msg": record.getMessage(),
        "exc_text": exception_text(record),
    }
    same = ("name", "levelname", "levelno", "pathname", "filename", "module", "lineno", "funcName", "created")
    for name in (
        *same,
        "msecs",
        "relativeCreated",
        "thread",
        "threadName",
        "process",
        "processName",
        "stack_info",
    ):
        fields[name] = getattr(record, name)
    return to_json(fields).encode()
