"""The alerts of an app: the service that detects problems and sends them, if there is a recipient."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbull.app import App


def alert_services(app: App) -> list[Callable[[], Awaitable[None]]]:
    """The alert service of an app, if its alerts have a destination."""
    if not app.alerts.destinations:
        return []
    from qbull.alerts.alerting import AlertService

    access = app.environment.access
    hides_values = access.hide_payloads or bool(access.redact)
    return [AlertService(app._make_store, app.prefix, app.alerts, hides_values=hides_values).run]
