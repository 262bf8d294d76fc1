"""The table of all endpoints. Routes, roles, validation, audit and the OpenAPI document follow from it."""

from __future__ import annotations

from qbull.api import (
    alerts,
    auth_endpoints,
    events,
    flows,
    health,
    job_stream,
    jobs,
    metrics,
    openapi,
    operations,
    overview,
    queues,
    schedules,
    workers,
)
from qbull.api.endpoint import Endpoint

TABLE: list[Endpoint] = [
    *health.ENDPOINTS,
    *overview.ENDPOINTS,
    *queues.ENDPOINTS,
    *jobs.ENDPOINTS,
    *job_stream.ENDPOINTS,
    *flows.ENDPOINTS,
    *operations.ENDPOINTS,
    *schedules.ENDPOINTS,
    *workers.ENDPOINTS,
    *alerts.ENDPOINTS,
    *events.ENDPOINTS,
    *metrics.ENDPOINTS,
    *auth_endpoints.ENDPOINTS,
    *openapi.ENDPOINTS,
]
