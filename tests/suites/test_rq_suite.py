"""RQ's own tests run against `qbull.compat.rq`, and end as the file of expected outcomes says."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from foreign_run import HERE, counts, differences, run_suite
from outcomes import OUTCOMES, PASS, read_expected, write_expected
from sdists import ROOT, RQ

from qbull.store.store import Store

EXPECTED = HERE / "rq_outcomes.tsv"
FILES = (
    "callbacks",
    "cron",
    "decorator",
    "dependencies",
    "fixtures",
    "group",
    "job",
    "job_dependency",
    "queue",
    "queue_unique",
    "registry",
    "repeat",
    "results",
    "retry",
    "scheduler",
    "serializers",
    "timeouts",
)


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not RQ.is_there, reason="RQ's sdist is not here: python tests/suites/sdists.py fetches it"
)
def test_the_tests_of_rq_end_as_expected(server_url: str, store: Store, tmp_path: Path) -> None:
    tests = [f"tests/test_{name}.py" for name in FILES]
    found = run_suite(RQ, "rq_door", tests, server_url, tmp_path / "report.json")
    if os.environ.get("RENEW_OUTCOMES"):
        write_expected(EXPECTED, found)

    assert differences(found, read_expected(EXPECTED)) == {}


def test_the_guide_has_the_counts_of_the_file() -> None:
    expected = read_expected(EXPECTED)
    page = (ROOT / "docs/guides/from_rq.md").read_text()
    section = page.split("## RQ's own tests")[1].split("\n## ")[0]
    rows = dict(
        re.findall(r"^\| (\d+) \| (pass|touch|are refused|differ|are skipped)", section, re.MULTILINE)
    )
    words = dict(zip(OUTCOMES, ("pass", "touch", "are refused", "differ", "are skipped"), strict=True))

    assert {word: int(number) for number, word in rows.items()} == {
        words[outcome]: number for outcome, number in counts(expected).items()
    }
    assert f"RQ {RQ.version}" in section
    assert f"Of {len(expected)}" in section
    assert counts(expected)[PASS] >= 80


def test_each_test_that_does_not_pass_has_a_reason() -> None:
    for name, (outcome, reason) in read_expected(EXPECTED).items():
        assert outcome in OUTCOMES, name
        assert bool(reason) == (outcome != PASS), name
