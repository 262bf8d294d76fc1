"""Job search: one query over all queues in the caller's scope, and the facets of its jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.filters import query_of
from qbull.api.jobs import job_view
from qbull.core.job_query import QUERY_FIELDS
from qbull.manage.job_facets import count_facets
from qbull.manage.job_search import SearchRequest, find_jobs
from qbull.views import job_search as views
from qbull.views.shape import view_of


async def search_jobs(call: ApiCall[views.FindQuery, Nothing]) -> views.FoundJobsView:
    request = await _request_of(call)
    found = await find_jobs(replace(request, limit=call.query.limit, cursor=call.query.cursor, is_quick=True))
    return views.FoundJobsView(
        timestamp=now(),
        jobs=[job_view(call, info) for info in found.jobs],
        scanned=found.scanned,
        total=found.total,
        next=found.next,
    )


async def job_facets(call: ApiCall[views.FacetsQuery, Nothing]) -> views.FacetsView:
    counted = await count_facets(await _request_of(call), lambda info: job_view(call, info))
    sees_errors = call.context.redaction.sees_payloads(call.caller)
    facets = [
        view_of(views.FacetView, one) for one in counted.facets if sees_errors or one.field != "fingerprint"
    ]
    return views.FacetsView(
        timestamp=now(),
        facets=facets,
        matched=counted.matched,
        scanned=counted.scanned,
        total=counted.total,
    )


async def query_fields(call: ApiCall[Nothing, Nothing]) -> views.QueryFieldsView:
    fields = [views.QueryFieldView(name=name, help=field.help) for name, field in QUERY_FIELDS.items()]
    return views.QueryFieldsView(timestamp=now(), fields=fields)


async def _request_of(call: ApiCall[Any, Nothing]) -> SearchRequest:
    return SearchRequest(
        await call.context.queues_of(call.caller),
        query_of(call.context, call.caller, call.query.q),
        call.context.redaction.fields,
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/jobs",
        role="viewer",
        scope="queues",
        summary="Search the jobs of all queues with a query",
        handler=search_jobs,
        query=views.FindQuery,
        answer=views.FoundJobsView,
    ),
    Endpoint(
        method="GET",
        path="/api/jobs/facets",
        role="viewer",
        scope="queues",
        summary="Count the jobs that match a query by queue, state, task, error, worker and argument",
        handler=job_facets,
        query=views.FacetsQuery,
        answer=views.FacetsView,
    ),
    Endpoint(
        method="GET",
        path="/api/query-fields",
        role="viewer",
        scope="none",
        summary="List the fields of the query language",
        handler=query_fields,
        answer=views.QueryFieldsView,
    ),
]
