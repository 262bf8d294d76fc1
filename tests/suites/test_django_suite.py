"""Django's own `tests/tasks` run against qbull's backend. All that do not test another backend pass."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from foreign_run import HERE, counts, differences, run_suite
from outcomes import DIFFERS, OUTCOMES, PASS, read_expected, write_expected
from sdists import DJANGO, ROOT

from qbull.store.store import Store

EXPECTED = HERE / "django_outcomes.tsv"
FILES = ("test_custom_backend", "test_dummy_backend", "test_immediate_backend", "test_tasks")
TEXT_OF_PYTHON_3_12 = "tasks/test_custom_backend.py::CustomBackendTestCase::test_no_enqueue"


@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not DJANGO.is_there, reason="Django's sdist is not here: python tests/suites/sdists.py fetches it"
)
def test_the_tests_of_django_end_as_expected(server_url: str, store: Store, tmp_path: Path) -> None:
    tests = [f"tests/tasks/{name}.py" for name in FILES]
    found = run_suite(DJANGO, "django_door", tests, server_url, tmp_path / "report.json")
    if sys.version_info < (3, 12):
        # The test expects the words of a TypeError that Python 3.12 raises.
        assert found[TEXT_OF_PYTHON_3_12][0] == DIFFERS
        found[TEXT_OF_PYTHON_3_12] = (PASS, "")
    if os.environ.get("RENEW_OUTCOMES"):
        write_expected(EXPECTED, found)

    assert differences(found, read_expected(EXPECTED)) == {}


def test_each_test_of_django_that_does_not_pass_is_about_another_backend() -> None:
    for name, (outcome, reason) in read_expected(EXPECTED).items():
        assert outcome in OUTCOMES, name
        if outcome != PASS:
            assert reason, name
            is_about_results_in_memory = "object has no attribute 'results'" in reason
            assert is_about_results_in_memory or "test_dummy_backend" in name or "test_immediate" in name, (
                name
            )


def test_the_page_has_the_counts_of_the_file() -> None:
    expected = read_expected(EXPECTED)
    page = (ROOT / "docs/guides/django.md").read_text()

    [(version, passed, total)] = re.findall(r"`tests/tasks` of Django ([\d.]+).*?(\d+) of (\d+) pass", page)
    assert version == DJANGO.version
    assert (int(passed), int(total)) == (counts(expected)[PASS], len(expected))
