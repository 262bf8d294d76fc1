"""Alerting: detect problems and send alerts. Runs beside workers, and in `qbull serve`.

Only one process of an app detects at a time. All of them send: messages are jobs of an internal queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from qbull.alerts.deliver import missing_package, send_message
from qbull.alerts.detect import WATCHER_TAKEOVER_SECONDS, ProblemWatcher
from qbull.core.alerts import Alerts
from qbull.core.codec import Signature
from qbull.core.problems import AlertNotification
from qbull.core.task import TaskSpec
from qbull.errors import Fail
from qbull.store.store import Store
from qbull.store.verbs.alerts import ALERT_QUEUE
from qbull.worker.assignment import Assignment
from qbull.worker.current import current_job
from qbull.worker.outage import Outage
from qbull.worker.worker import Worker

log = logging.getLogger("qbull.alerts")

ALERT_POLL_SECONDS = 2.0
"""Pause between two checks; longer if they are slow, so that checking takes at most a tenth of the time."""
ERROR_LOG_SECONDS = 60.0
"""Seconds for which the same unexpected error is not logged again."""


class AlertService:
    """The alerting loop of one process. `app` is the app's prefix.

    With `hides_values` the alerts have the type of an error, and not its text.
    """

    def __init__(
        self, make_store: Callable[[], Store], app: str, alerts: Alerts, *, hides_values: bool = False
    ) -> None:
        self._make_store = make_store
        self._hides_values = hides_values
        self._app = app
        self._alerts = alerts
        self._destinations = {destination.label: destination for destination in alerts.destinations}
        self._outage = Outage()
        self._error, self._logged_at = "", 0.0

    async def run(self) -> None:
        """Check and send until cancelled."""
        for destination in self._alerts.destinations:
            if (lacks := missing_package(destination)) is not None:
                log.error("alerts cannot go to %s", lacks)
        spec = TaskSpec(
            "send", self._send, Signature("send", self._send), "async", ALERT_QUEUE.retry, ALERT_QUEUE.timeout
        )
        worker = Worker(self._make_store, [Assignment(ALERT_QUEUE, {"send": spec})])
        store = self._make_store().without_retry
        try:
            await self._outage.retry_until_up(store.open)
            await worker.start()
            watch = ProblemWatcher(store, self._alerts, worker.id, hides_values=self._hides_values)
            while True:
                began = time.monotonic()
                mine = await self._look(watch)
                took = time.monotonic() - began
                await asyncio.sleep(
                    max(ALERT_POLL_SECONDS, 10 * took) if mine else WATCHER_TAKEOVER_SECONDS / 2
                )
        finally:
            await asyncio.shield(worker.stop(grace=1.0))
            await store.close()

    async def _look(self, watch: ProblemWatcher) -> bool:
        """Check once. An unexpected error is logged, and the next check comes as usual."""
        try:
            mine = await self._outage.retry_until_up(watch.look)
        except Exception as error:
            now, text = time.monotonic(), repr(error)
            if text != self._error or now - self._logged_at >= ERROR_LOG_SECONDS:
                self._error, self._logged_at = text, now
                log.exception("unexpected error while looking for problems; alerting goes on")
            return True
        return mine

    async def _send(self, to: str, message: dict[str, Any]) -> None:
        destination = self._destinations.get(to)
        if destination is None:
            raise Fail(
                f'"{to}" is not a destination of this process; give all processes the same destinations'
            )
        job = current_job()
        assert job is not None
        await send_message(
            job.id, msgspec.convert(message, AlertNotification), destination, self._alerts, self._app
        )
