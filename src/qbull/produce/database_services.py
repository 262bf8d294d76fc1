"""The services of an app with a database: the relay of its outbox, and the maintenance of the tables."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from qbull.errors import ConfigError

if TYPE_CHECKING:
    from qbull.app import App
    from qbull.postgres.relay import Relay
    from qbull.worker.outage import Outage

log = logging.getLogger("qbull")


def database_services(app: App) -> list[Callable[[], Awaitable[None]]]:
    """The relay and the maintenance of the tables, if the app has a database."""
    if app.database is None:
        return []
    if find_spec("psycopg") is None:
        log.warning('a database is configured, but no relay runs here; pip install "qbull[postgres]"')
        return []
    from qbull.postgres.maintenance import DatabaseMaintenance
    from qbull.worker.outage import Outage

    outage = Outage("PostgreSQL")
    return [
        app.relay(outage).run,
        DatabaseMaintenance(app.database, app.prefix, app._make_store, outage).run,
    ]


def make_relay(app: App, outage: Outage | None = None) -> Relay:
    """The relay that ships the outbox of an app."""
    from qbull.postgres.relay import Relay
    from qbull.produce.shipping import OutboxShipping

    if app.database is None:
        raise ConfigError("no database is configured; set QBULL_DATABASE_URL, or App(database=…)")
    return Relay(app.database, app.prefix, OutboxShipping(app), outage)
