"""The table: every endpoint there is. Routes, roles, validation, audit and the OpenAPI document come from it."""

from __future__ import annotations

from qbull.api import (
    alerts,
    events,
    fleet,
    flows,
    health,
    jobs,
    metrics,
    openapi,
    operations,
    overview,
    people,
    queues,
    schedules,
)
from qbull.api.endpoint import Endpoint

TABLE: list[Endpoint] = [
    *health.ENDPOINTS,
    *overview.ENDPOINTS,
    *queues.ENDPOINTS,
    *jobs.ENDPOINTS,
    *flows.ENDPOINTS,
    *operations.ENDPOINTS,
    *schedules.ENDPOINTS,
    *fleet.ENDPOINTS,
    *alerts.ENDPOINTS,
    *events.ENDPOINTS,
    *metrics.ENDPOINTS,
    *people.ENDPOINTS,
    *openapi.ENDPOINTS,
]
