"""A plugin of pytest that writes the outcome of each test of another project, with its reason."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from outcomes import outcome_of


class Report:
    found: dict[str, list[str]] = {}  # noqa: RUF012 - one run of a process


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.when == "call" or report.outcome != "passed":
        name = item.nodeid.removeprefix("tests/")
        Report.found.setdefault(name, list(outcome_of(report.outcome, call.excinfo)))
    return report


def pytest_sessionfinish() -> None:
    Path(os.environ["SUITE_REPORT"]).write_text(json.dumps(Report.found, indent=0))
