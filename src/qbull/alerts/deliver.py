"""Deliver: send an alert message to one destination, or a test message to all of them."""

from __future__ import annotations

import time

from qbull.alerts.destinations import type_of
from qbull.alerts.message import MessageSender
from qbull.alerts.webhook import NotSent
from qbull.core.alerts import Alerts, Destination
from qbull.core.ids import new_id
from qbull.core.problems import AlertNotification, Problem, ProblemNotice


async def send_message(
    id: str, message: AlertNotification, to: Destination, alerts: Alerts, app: str
) -> None:
    """Send a message. Raises NotSent if it did not arrive. `id` is the same for every attempt."""
    await type_of(to.kind).send(id, message, to, alerts, MessageSender(app, alerts.link))


async def send_test_messages(alerts: Alerts, app: str) -> list[tuple[Destination, str | None]]:
    """Send a test message to each destination; returns the error of each, or None if the message arrived."""
    at = int(time.time() * 1000)
    problem = Problem("failed", "test", "test", reason="this is a test; nothing has failed")
    message = AlertNotification(at, [ProblemNotice("firing", problem, at)])
    tried: list[tuple[Destination, str | None]] = []
    for to in alerts.destinations:
        try:
            await send_message(new_id(0), message, to, alerts, app)
            tried.append((to, None))
        except NotSent as error:
            tried.append((to, str(error)))
    return tried


def missing_package(to: Destination) -> str | None:
    """The package that this process needs for a destination but does not have, with the remedy."""
    return type_of(to.kind).missing_package(to)
