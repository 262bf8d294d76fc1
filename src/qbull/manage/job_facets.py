"""Facets: how many of the jobs that match a query are in each queue, in each state, of each task …

Counts of queues and states are exact if the query selects by nothing else. The others are those of the jobs
that were read within a bounded time; they are exact if that was all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from qbull.core.argument_path import scalar_text
from qbull.core.failures import fingerprint, normal_form
from qbull.core.job_info import JobInfo
from qbull.manage.job_search import JobSearch, SearchRequest, start_search

MAX_FACET_JOBS = 2000
"""Matching jobs that are counted."""
MAX_FACET_VALUES = 20
"""Values of a facet, the most frequent."""
MAX_FACET_ARGUMENTS = 20
MAX_FACET_VALUE_CHARS = 200


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value, the number of jobs that have it, and a text for people if the value is none."""

    value: str
    count: int
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Facet:
    """The most frequent values of a field. `exact`: all matching jobs were counted."""

    field: str
    exact: bool
    values: list[FacetValue]


@dataclass(frozen=True, slots=True)
class JobFacets:
    """The facets of a query.

    Attributes:
        facets: By field.
        matched: Matching jobs that were counted.
        scanned: Jobs that were read for it.
        total: Jobs in the queues and states of the query.
    """

    facets: list[Facet]
    matched: int
    scanned: int
    total: int


async def count_facets(request: SearchRequest, shown: Callable[[JobInfo], JobInfo]) -> JobFacets:
    """The facets of the jobs that match.

    Args:
        request: selects the jobs.
        shown: makes a job as the caller may see it.
    """
    queues = [queue for queue in request.queues if request.query.allows_queue(queue.name)]
    search = await start_search(replace(request, limit=MAX_FACET_JOBS, cursor=None), queues)
    await search.run()
    infos = [shown(place.queue._info(job)) for place, job in search.found]
    is_exact = search.next is None
    facets = [
        Facet("state", is_exact, _top(Counter(info.state for info in infos))),
        Facet("queue", is_exact, _top(Counter(info.queue for info in infos))),
    ]
    if not request.query.content and request.query.since is None and request.query.until is None:
        facets = _counted(search)
    facets.append(Facet("task", is_exact, _top(Counter(info.task for info in infos))))
    facets.append(Facet("fingerprint", is_exact, _errors(infos)))
    facets.append(Facet("worker", is_exact, _top(Counter(info.worker for info in infos if info.worker))))
    facets += _arguments(infos, is_exact)
    return JobFacets(facets, len(infos), search.scanned, search.total)


def _counted(search: JobSearch) -> list[Facet]:
    """The facets that need no reading."""
    states: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for place in search.places:
        states.update(place.counts)
        queues[place.queue.name] += sum(place.counts.values())
    return [Facet("state", True, _top(states)), Facet("queue", True, _top(queues))]


def _errors(infos: list[JobInfo]) -> list[FacetValue]:
    errors = Counter(
        (fingerprint(info.error), normal_form(info.error))
        for info in infos
        if info.error and info.state != "cancelled"
    )
    return [FacetValue(name, n, form) for (name, form), n in errors.most_common(MAX_FACET_VALUES)]


def _arguments(infos: list[JobInfo], exact: bool) -> list[Facet]:
    values: dict[str, Counter[str]] = {}
    for info in infos:
        for name, value in info.payload.items() if isinstance(info.payload, dict) else ():
            if not isinstance(value, dict | list):
                values.setdefault(name, Counter())[_short(value)] += 1
    names = sorted(values, key=lambda name: -values[name].total())[:MAX_FACET_ARGUMENTS]
    return [Facet(f"args.{name}", exact, _top(values[name])) for name in names]


def _short(value: Any) -> str:
    return scalar_text(value)[:MAX_FACET_VALUE_CHARS]


def _top(found: Counter[Any]) -> list[FacetValue]:
    return [FacetValue(value, n) for value, n in found.most_common(MAX_FACET_VALUES) if n]
