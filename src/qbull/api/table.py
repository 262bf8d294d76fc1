"""The table: every endpoint there is. Routes, roles, validation, audit and the OpenAPI document come from it."""

from __future__ import annotations

from qbull.api import health, jobs, openapi, people, queues
from qbull.api.endpoint import Endpoint

TABLE: list[Endpoint] = [
    *health.ENDPOINTS,
    *queues.ENDPOINTS,
    *jobs.ENDPOINTS,
    *people.ENDPOINTS,
    *openapi.ENDPOINTS,
]
