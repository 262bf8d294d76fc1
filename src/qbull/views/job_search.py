"""Shapes of searches over all queues."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from qbull.core.job_info import JobInfo
from qbull.views.jobs import QueryText
from qbull.views.shape import AnswerShape, Shape


class FindQuery(Shape, kw_only=True):
    """`q` is a query, such as `queue:email state:failed error:"421" since:1h`; `cursor` is the `next` of the
    answer before.
    """

    q: QueryText = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: Annotated[str, Meta(max_length=300, pattern=r"^[A-Za-z0-9._:/~$@-]+$")] | None = None


class FoundJobsView(AnswerShape, kw_only=True):
    """Jobs that match, the newest first. `scanned` jobs were read since the first answer, of `total` in the
    queues and states of the query. `next` is the cursor to continue with; null if all were read. An answer
    may have few jobs, or none, and a cursor.
    """

    jobs: list[JobInfo]
    scanned: int
    total: int
    next: str | None


class FacetsQuery(Shape, kw_only=True):
    """`q` is a query, as for a search."""

    q: QueryText = ""


class FacetValueView(Shape, kw_only=True):
    """A value and the number of jobs that have it; `label` is its text for people."""

    value: str
    count: int
    label: str | None


class FacetView(Shape, kw_only=True):
    """The most frequent values of a field. `exact` is false if only some of the jobs were read."""

    field: str
    exact: bool
    values: list[FacetValueView]


class FacetsView(AnswerShape, kw_only=True):
    """Facets of the jobs that match. `matched` jobs were counted, of `scanned` that were read of `total`."""

    facets: list[FacetView]
    matched: int
    scanned: int
    total: int


class QueryFieldView(Shape, kw_only=True):
    """A field of the query language."""

    name: str
    help: str


class QueryFieldsView(AnswerShape, kw_only=True):
    """All fields of the query language."""

    fields: list[QueryFieldView]
