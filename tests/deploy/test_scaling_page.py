"""docs/scaling.md and deploy/README.md: the tables are what the code computes, the files are there. Commands and links are looked at in tests/docs."""

from __future__ import annotations

import re
import shlex

import pytest
from reading import DEPLOY, ROOT, parsed, variables

from qbull.core.sharing import ShareMember, assign_partitions, make_sharing, static_partitions
from qbull.environment import read_environment

PAGE = ROOT / "docs" / "scaling.md"
SCENARIOS = re.findall(
    r"^### (\d+) partitions on (\d+) workers\n(.*?)(?=^##)", PAGE.read_text(), re.DOTALL | re.MULTILINE
)


def commands(text: str) -> list[str]:
    """The lines of its blocks that run qbull."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [
        line for block in blocks for line in block.splitlines() if re.match(r"([A-Z_]+=\S+ )*qbull ", line)
    ]


def split(line: str) -> tuple[dict[str, str], list[str]]:
    """The variables before a command, and its arguments."""
    words = shlex.split(line, comments=True)
    at = words.index("qbull")
    return variables([" ".join(words[:at])]) if at else {}, words[at + 1 :]


def test_there_are_the_three_scenarios() -> None:
    assert [(int(p), int(w)) for p, w, _ in SCENARIOS] == [(16, 8), (64, 16), (8, 8)]


@pytest.mark.parametrize(("partitions", "workers", "text"), SCENARIOS)
def test_the_table_of_a_scenario_is_what_the_formula_gives(partitions: str, workers: str, text: str) -> None:
    rows = re.findall(r"^\| (\d+) \| ([\d, ]+) \|$", text, re.MULTILINE)

    shares = [static_partitions(int(partitions), i, int(workers), 0, 1) for i in range(int(workers))]

    assert f"| instance of {workers} | reads of {partitions} |" in text
    assert [(int(i), [int(p) for p in share.split(",")]) for i, share in rows] == list(enumerate(shares))


@pytest.mark.parametrize(("partitions", "workers", "text"), SCENARIOS)
def test_every_kind_of_sharing_gives_each_worker_the_same_number(
    partitions: str, workers: str, text: str
) -> None:
    each = int(partitions) // int(workers)
    auto, leased, static = (make(line) for line in commands(text)[:3])

    names = [f"worker-{n}" for n in range(int(workers))]
    for sharing in (auto, leased):
        shares = assign_partitions(int(partitions), {name: ShareMember(most=sharing.most) for name in names})
        assert [len(share) for share in shares.values()] == [each] * int(workers)
    assert (auto.mode, leased.mode, static.mode) == ("auto", "leased", "static")
    assert leased.most == each
    assert static.instances == int(workers)


def make(line: str):  # type: ignore[no-untyped-def]
    env, arguments = split(line)
    _, options = parsed(arguments)
    read = read_environment(env).sharing
    given = (
        options["sharing"],
        options["partitions_per_pod"],
        options["instance_id"],
        options["instance_count"],
    )
    return make_sharing(*given) if any(given) else read


def test_uneven_shares_are_as_the_page_says() -> None:
    shares = assign_partitions(16, {f"pod-{n}": ShareMember() for n in range(6)})

    assert "16 on 6 is 3 for four of them and 2 for two" in PAGE.read_text()
    assert sorted(len(share) for share in shares.values()) == [2, 2, 3, 3, 3, 3]


def test_every_file_that_is_named_is_there_and_every_file_is_named() -> None:
    readme = (DEPLOY / "README.md").read_text()
    named = set(re.findall(r"`?deploy/([\w./@-]+\w)", PAGE.read_text() + readme)) - {"README.md"}

    assert [name for name in named if not (DEPLOY / name).exists()] == []
    chart = DEPLOY / "helm" / "qbull"
    for path in DEPLOY.rglob("*"):
        if chart in path.parents:
            continue
        if path.is_file() and path.name not in ("README.md", "worker.env", "Dockerfile.dockerignore"):
            assert path.name in readme, f"{path.name} is not in deploy/README.md"
