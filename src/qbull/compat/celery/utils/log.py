"""`celery.utils.log`: the logger of a task."""

from __future__ import annotations

import logging

get_logger = logging.getLogger


def get_task_logger(name: str) -> logging.Logger:
    """Return the logger of a module. Lines that a task logs name its job.

    Args:
        name: The name of the module.
    """
    return logging.getLogger(name)
