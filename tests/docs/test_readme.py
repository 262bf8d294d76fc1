"""The front page: following it to the letter leads to a job on the dashboard, and both languages say the same."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, Block, blocks_of, links_of

from conftest import eventually

README, SPANISH = ROOT / "README.md", ROOT / "README.es.md"
CHART = re.compile(r'^value \d+ \d+ \d+ \d+ (\d+) \d+ "([\w, ]+)"', re.MULTILINE)
SECONDS = 60
"""What the page promises, from the end of the set-up on."""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path is short, as the paths of sockets have to be."""
    with tempfile.TemporaryDirectory(prefix="q") as directory:
        yield Path(directory)


def said(language: str) -> list[Block]:
    return [block for block in blocks_of(README) if block.language == language]


def commands(start: str) -> list[str]:
    """The lines of the page that begin so, without their comments."""
    lines = [line for block in said("sh") for line in block.text.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.startswith(start)]


class Terminal:
    """Somebody who types what the page says, in a directory of his own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"}

    def run(self, line: str) -> str:
        done = subprocess.run(
            line, shell=True, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self, line: str, cwd: Path | None = None) -> Iterator[Path]:
        """A command that goes on; gives where what it prints is written."""
        log = self.directory / f"{abs(hash(line))}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {line}"], cwd=cwd or self.directory, env=self.environment, stdout=out, stderr=out, start_new_session=True
            )  # fmt: skip
        try:
            yield log
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)


async def printed(log: Path, pattern: str) -> re.Match[str]:
    async def look() -> re.Match[str] | None:
        return re.search(pattern, re.sub(r"\x1b\[[0-9;]*m", "", log.read_text()))

    found: re.Match[str] = await eventually(look, within=SECONDS)
    return found


def ask(url: str, password: str) -> Any:
    request = urllib.request.Request(url)
    request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{password}".encode()).decode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        body = answer.read()
    return json.loads(body) if "json" in answer.headers["content-type"] else body.decode()


@pytest.mark.timeout(200)
async def test_a_newcomer_has_a_job_of_his_own_on_the_dashboard(short_path: Path) -> None:
    terminal = Terminal(short_path)
    (short_path / "shop.py").write_text(said("python")[0].text)
    [dev], [enqueue] = commands("qbull dev"), commands("qbull enqueue")

    with terminal.running(f"{dev} --port 0") as log:
        found = await printed(log, r"(http://\S+)/ui, user admin, password (\S+)")
        assert "charged ada 12.50" in terminal.run(enqueue)
        done = ask(f"{found[1]}/api/queues/orders/jobs?state=completed", found[2])
        page = ask(f"{found[1]}/ui", found[2])

    [job] = done["jobs"]
    assert (job["task"], job["key"], job["result"]) == ("charge", "ada", "charged ada 12.50")
    assert "<script" in page


@pytest.mark.timeout(200)
async def test_the_quickstart_works_as_it_is_written(short_path: Path) -> None:
    blocks = list(blocks_of(ROOT / "docs" / "guides" / "first_steps.md"))
    program, *_ = [block.text for block in blocks if block.language == "python"]
    _, dev, enqueue = [block.text.strip() for block in blocks if block.language == "sh"]
    shown, result = [block.text for block in blocks if block.language == "text"]
    terminal = Terminal(short_path)
    (short_path / "shop.py").write_text(program)

    with terminal.running(f"{dev} --port 0") as log:
        await printed(log, r"watching .*; reloads when you save a Python file, press Ctrl-C to stop")
        assert terminal.run(enqueue) == result
        labels = re.compile(r"^(?:qbull dev: shop:app|  [\w ]{10,11} )", re.MULTILINE)
        assert labels.findall(log.read_text())[: len(shown.splitlines())] == labels.findall(shown)


@pytest.mark.timeout(200)
async def test_the_demo_prints_what_the_page_shows(short_path: Path) -> None:
    [demo] = commands("qbull demo")
    first, *_ = said("text")[0].text.splitlines()

    with Terminal(short_path).running(demo) as log:
        await printed(log, r"dashboard: (http://\S+)/ui, user admin, password (\S+)")
        assert first in log.read_text()
        assert re.search(
            r"  QBULL_URL=embedded://\S+ QBULL_PREFIX=demo qbull jobs email --state failed", log.read_text()
        )


@pytest.mark.timeout(200)
async def test_make_run_shows_jobs_on_the_dashboard(short_path: Path) -> None:
    [run] = commands("make run")

    with Terminal(short_path).running(run, cwd=ROOT) as log:
        found = await printed(log, r"dashboard: (http://\S+)/ui, user admin, password (\S+)")

        async def done() -> bool:
            queues = ask(f"{found[1]}/api/queues/stats", found[2])["queues"]
            return any(queue["completed"] for queue in queues.values())

        assert await eventually(done, within=SECONDS)
        assert "<script" in ask(f"{found[1]}/ui", found[2])


def test_both_languages_have_the_same_sections_code_links_and_figures() -> None:
    english, spanish = README.read_text(), SPANISH.read_text()

    assert shape(english) == shape(spanish)
    assert [code(block) for block in blocks_of(README)] == [code(block) for block in blocks_of(SPANISH)]
    other = {"README.md": "README.es.md", "#ejemplos": "#examples"}
    assert links_of(README) == [other.get(link, link) for link in links_of(SPANISH)]
    assert figures(english) == [figure.translate(str.maketrans(".,", ",.")) for figure in figures(spanish)]


def shape(text: str) -> list[str]:
    """What kind of line comes after what: headings, list items, rows of tables."""
    return re.findall(r"^(#+ |- |\| |```)", text, re.MULTILINE)


def code(block: Block) -> tuple[str, list[str]]:
    """A block without its comments, which are in the language of the page."""
    return block.language, [line for line in block.text.splitlines() if not line.startswith("#")]


def figures(text: str) -> list[str]:
    """The figures of the benchmark, from its table to the end of its section."""
    benchmark = text.partition("| jobs a second |")[2] or text.partition("| trabajos por segundo |")[2]
    return re.findall(r"\b\d[\d.,]*\d\b", benchmark.partition("\n## ")[0])


def test_the_front_page_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 240
    assert len(said("python")[0].text.splitlines()) <= 15


def test_every_command_has_its_expected_output() -> None:
    """Commands that show something in the terminal are followed by what they show; `make` targets are not."""
    blocks = list(blocks_of(README))
    shown = {
        block.text.splitlines()[-1].split()[1]
        for block, after in itertools.pairwise(blocks)
        if block.language == "sh" and after.language == "text"
    }

    assert shown == {"demo", "dev", "enqueue"}
    dev, enqueued = (block.text for block in said("text")[1:])
    assert enqueued == '"charged ada 12.50"\n'
    assert "orders (1 task, in order by key)" in dev


def test_the_comparison_is_that_of_the_features() -> None:
    compared = table(README.read_text(), "| feature | qbull |")
    features = table((ROOT / "docs" / "features.md").read_text(), "| feature | Celery |")

    assert len(compared) >= 10
    for name, ours, *others in compared:
        [row] = [row for row in features if row[0] == name]
        assert ours == "yes"
        assert others == [re.match(r"\[?(\w+)", cell)[1] for cell in row[1:6]], name  # type: ignore[index]


def table(text: str, head: str) -> list[list[str]]:
    rows = text.partition(head)[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_chart_has_the_figures_of_the_benchmarks() -> None:
    drawn = (ROOT / "docs" / "diagrams" / "benchmark.txt").read_text()
    values = {name.replace(",", " with"): int(value) for value, name in CHART.findall(drawn)}
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    queues = page.partition("## Beside other queues")[2].partition("For durable steps")[0]
    rows = re.findall(r"^\| (\S+) [\d.]+(, threads)? \| .* \| (\d+) times \|$", queues, re.MULTILINE)
    times = {name + (" with threads" if threads else ""): int(many) for name, threads, many in rows}

    assert values.pop("qbull") == 1_000
    assert values.keys() == times.keys()
    for name, value in values.items():
        assert value == pytest.approx(1_000 / times[name], rel=0.05, abs=0.6), name
    for file in (page, README.read_text(), (ROOT / "docs" / "compare" / "index.md").read_text()):
        [alternative] = re.findall(
            r"!\[Jobs that other queues finish while qbull finishes 1,000: (.*)\]", file
        )
        assert {
            name: int(many) for name, many in re.findall(r"(?:^|[:,;] )([^:,;]+) (\d+)", alternative)
        } == values
