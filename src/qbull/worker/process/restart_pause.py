"""The pause before a supervisor starts the next worker process, after one that did not get far."""

from __future__ import annotations

from qbull.core.backoff import ExponentialBackoff

STABLE_UPTIME_SECONDS = 10.0
"""If a process has lived this long, the next one starts at once. Otherwise the pause grows each time."""
RESTART_BACKOFF = ExponentialBackoff(first_seconds=0.25, max_seconds=30.0)
START_FAILED_BACKOFF = ExponentialBackoff(first_seconds=1.0, max_seconds=30.0)
START_FAILED_EXIT_CODE = 76
"""A worker process ends with this code if a lifespan of the app fails to start. It has logged the reason."""


class RestartPause:
    """For one slot of a supervisor: its process, and those that follow."""

    def __init__(self) -> None:
        self._quick_deaths = 0

    def after(self, code: int, uptime_seconds: float, *, ran_jobs: bool) -> float:
        """Seconds to wait after a process has ended.

        Args:
            code: Its exit code.
            uptime_seconds: How long it has lived.
            ran_jobs: Whether it was running jobs: then a job is to blame, and it is known which, so the
                others need not wait.
        """
        if code == START_FAILED_EXIT_CODE:
            self._quick_deaths += 1
            return START_FAILED_BACKOFF.delay(self._quick_deaths - 1)
        if ran_jobs or uptime_seconds >= STABLE_UPTIME_SECONDS:
            self._quick_deaths = 0
        else:
            self._quick_deaths += 1
        return RESTART_BACKOFF.delay(self._quick_deaths - 2) if self._quick_deaths > 1 else 0.0
