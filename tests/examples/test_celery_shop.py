"""examples/celery_shop: the same project runs on Celery and on qbull, and only imports differ."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbull.cli.check_celery.check import check_celery_project
from topology import COMMON, PASSWORD, Node, wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "celery_shop"
WORKERS = {
    "before": "celery -A shop worker -Q celery,mail --pool threads",
    "after": "qbull worker shop.celery:app",
}
SENDER = "python send.py"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    node = Node(tmp_path / "redis", COMMON)
    node.start()
    wait_for(node.answers)
    yield f"redis://:{PASSWORD}@{node.place}/0"
    node.kill()


def changed_lines() -> dict[str, list[str]]:
    """The lines of each file that differ, without those that are the same."""
    found = {}
    for path in sorted(EXAMPLE.glob("before/**/*.py")):
        name = str(path.relative_to(EXAMPLE / "before"))
        other = (EXAMPLE / "after" / name).read_text().splitlines()
        lines = [each for each in difflib.ndiff(path.read_text().splitlines(), other) if each[0] in "-+"]
        if lines:
            found[name] = lines
    return found


def test_only_imports_differ() -> None:
    changed = changed_lines()

    assert sum(map(len, changed.values())) == 8, "four lines are replaced"
    for lines in changed.values():
        for line in lines:
            assert re.match(r"[-+] from (qbull\.compat\.)?celery(\.[a-z.]+)? import ", line), line
    readme = (EXAMPLE / "README.md").read_text()
    assert [name for name in changed if f"/{name} " not in readme] == []
    assert "3 files changed, 4 insertions(+), 4 deletions(-)" in readme
    assert {p.relative_to(EXAMPLE / "before") for p in EXAMPLE.glob("before/**/*.py")} == {
        p.relative_to(EXAMPLE / "after") for p in EXAMPLE.glob("after/**/*.py")
    }


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_check_finds_nothing_that_must_change(side: str) -> None:
    report = check_celery_project(EXAMPLE / side)

    assert (report.of_level("refused"), report.accepted, len(report.tasks)) == ([], 6, 6)


@pytest.mark.parametrize("side", ["before", "after"])
def test_both_run_and_print_the_same(side: str, redis: str, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("QBULL_URL", "REDIS_URL")}
    environment |= {"SHOP_REDIS": redis, "PYTHONPATH": str(EXAMPLE / side), "PYTHONDONTWRITEBYTECODE": "1"}
    program, *arguments = WORKERS[side].split()
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [Path(sys.executable).with_name(program), *arguments],
            cwd=EXAMPLE / side,
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            sent = subprocess.run(
                [sys.executable, SENDER.split()[1]],
                cwd=EXAMPLE / side,
                env=environment,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
        finally:
            worker.terminate()
            worker.wait(30)

    readme = (EXAMPLE / "README.md").read_text()
    assert sent.returncode == 0, sent.stderr + (tmp_path / "worker.log").read_text()
    assert sent.stdout == readme.rpartition("```text\n")[2].partition("```")[0]
    assert "tell the shop: shop.tasks.reserve failed with chair" in (tmp_path / "worker.log").read_text()
