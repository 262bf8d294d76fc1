"""The images of deploy/ and of the templates are pinned by digest, and `make pin` renews the pins from a registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from images import FILES, IMAGE

ROOT = Path(__file__).parents[2]
NEW = f"sha256:{'ab' * 32}"


class Registry(BaseHTTPRequestHandler):
    """Answers like the registry of Docker: a token for a repository, then the digest of a tag."""

    def do_GET(self) -> None:
        self._answer({}, f'{{"token": "may-pull{self.path}"}}'.encode())

    def do_HEAD(self) -> None:
        repository, _ = re.fullmatch(r"/v2/(.+)/manifests/(.+)", self.path).groups()  # type: ignore[union-attr]
        if (
            self.headers["Authorization"] == f"Bearer may-pull/{repository}"
            and "index" in self.headers["Accept"]
        ):
            self._answer({"Docker-Content-Digest": NEW}, b"")
        else:
            self.send_error(401)

    def _answer(self, headers: dict[str, str], body: bytes) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def registry() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def pin(copy: Path, registry: str) -> subprocess.CompletedProcess[str]:
    here = {"REGISTRY_URL": registry, "REGISTRY_TOKEN_URL": f"{registry}/{{}}", "no_proxy": "*"}
    return subprocess.run(
        [sys.executable, "requirements/images.py", str(copy)],
        cwd=ROOT,
        env=os.environ | here,
        capture_output=True,
        text=True,
    )


def pins(root: Path) -> list[tuple[str, str]]:
    texts = [(root / file).read_text() for file in FILES]
    return [
        (f"{found['name']}:{found['tag']}", found["digest"])
        for text in texts
        for found in IMAGE.finditer(text)
    ]


def test_every_image_that_comes_from_a_registry_is_pinned() -> None:
    bases = re.findall(r"^FROM (\S+)", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    stacks = [file for file in FILES if file.endswith(".yaml")]
    images = {
        image
        for file in stacks
        for image in re.findall(r"^ +image: (.+)$", (ROOT / file).read_text(), re.MULTILINE)
    }

    assert {name for name, _ in pins(ROOT)} == {
        "python:3.13-slim", "node:22-slim", "valkey/valkey:8.1", "postgres:17-alpine",
    }  # fmt: skip
    assert len({*pins(ROOT)}) == 4, "an image with two digests"
    assert set(bases) == {"${PYTHON}", "${NODE}"}
    assert {image for image in images if "@sha256:" not in image} == {
        "qbull",
        '"${QBULL_IMAGE:?set QBULL_IMAGE}"',
    }
    [base] = re.findall(r"^FROM (\S+)", (ROOT / "examples/orders/Dockerfile").read_text(), re.MULTILINE)
    assert "@sha256:" in base


def test_the_pins_are_renewed_from_the_registry(copy: Path, registry: str) -> None:
    done = pin(copy, registry)

    assert done.returncode == 0, done.stdout + done.stderr
    assert pins(copy) == [(name, NEW) for name, _ in pins(ROOT)]
    assert done.stdout.count(f" gets {NEW}\n") == len(pins(ROOT))


def test_without_a_registry_the_pins_stay_and_it_fails(copy: Path) -> None:
    done = pin(copy, "http://127.0.0.1:9")

    assert (done.returncode, done.stdout.count("\n")) == (2, 1)
    assert "nothing was changed" in done.stdout
    assert pins(copy) == pins(ROOT)
