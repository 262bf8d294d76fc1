"""Alerting: look for problems, and send what is to be said of them. Runs beside workers, and in `qbull serve`.

Of all processes of an app one looks at a time. Each of them sends: messages are jobs of qbull's own queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from qbull.alerts.deliver import missing, send
from qbull.alerts.detect import TURN, Watch
from qbull.core.alerts import Alerts
from qbull.core.codec import Signature
from qbull.core.problems import Message
from qbull.core.task import TaskSpec
from qbull.errors import Fail
from qbull.store.store import Store
from qbull.store.verbs.alerts import QUEUE
from qbull.worker.assignment import Assignment
from qbull.worker.current import current_job
from qbull.worker.outage import Outage
from qbull.worker.worker import Worker

log = logging.getLogger("qbull.alerts")

LOOK = 2.0
"""Seconds between two looks; more where they take long, so that looking is a tenth of one's time at most."""


class Alerting:
    """`app` is its prefix."""

    def __init__(self, make_store: Callable[[], Store], app: str, alerts: Alerts) -> None:
        self._make_store = make_store
        self._app = app
        self._alerts = alerts
        self._places = {place.label: place for place in alerts.destinations}
        self._outage = Outage()

    async def run(self) -> None:
        """Look and send until cancelled."""
        for place in self._alerts.destinations:
            if (lacks := missing(place)) is not None:
                log.error("alerts cannot go to %s", lacks)
        spec = TaskSpec(
            "send", self._send, Signature("send", self._send), "async", QUEUE.retry, QUEUE.timeout
        )
        worker = Worker(self._make_store, [Assignment(QUEUE, {"send": spec})])
        store = self._make_store()
        try:
            await self._outage.survive(store.open)
            await worker.start()
            watch = Watch(store, self._alerts, worker.id)
            while True:
                began = time.monotonic()
                mine = await self._outage.survive(watch.look)
                took = time.monotonic() - began
                await asyncio.sleep(max(LOOK, 10 * took) if mine else TURN / 2)
        finally:
            await asyncio.shield(worker.stop(grace=1.0))
            await store.close()

    async def _send(self, to: str, message: dict[str, Any]) -> None:
        place = self._places.get(to)
        if place is None:
            raise Fail(
                f'"{to}" is not a place that this process sends alerts to; give all processes the same'
            )
        job = current_job()
        assert job is not None
        await send(job.id, msgspec.convert(message, Message), place, self._alerts, self._app)
