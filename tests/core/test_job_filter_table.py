"""The table of job filters is complete: Python, REST and the dashboard's types have the same filters."""

from __future__ import annotations

from typing import get_type_hints

import msgspec
import pytest

from qbull.core.job_filter import JOB_FILTERS, JobFilter, JobFilterArguments
from qbull.views.jobs import FailuresQuery, FilterShape, JobsQuery
from qbull.views.operations import CleanBody, MatchingQuery, NewOperationBody, RedriveBody


def test_python_takes_each_filter() -> None:
    fields = [field.name for field in msgspec.structs.fields(JobFilter)]
    assert fields == [*JOB_FILTERS, "hidden"]  # The last one is set by the server, not by a caller.
    assert list(get_type_hints(JobFilterArguments)) == list(JOB_FILTERS)


@pytest.mark.parametrize(
    "shape", [FilterShape, JobsQuery, FailuresQuery, MatchingQuery, NewOperationBody, RedriveBody, CleanBody]
)
def test_requests_that_choose_jobs_take_each_filter(shape: type[msgspec.Struct]) -> None:
    assert set(JOB_FILTERS) <= set(shape.__struct_fields__)
