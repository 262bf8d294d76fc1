"""The image as it runs: not as root, with nothing to write to but /tmp, with a health check that knows the app.

Docker builds it if its daemon runs here. Otherwise building.py runs the steps of the Dockerfile.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import test_image
from building import DockerImage, Image, OverlayImage, has_docker, has_overlays
from reading import DEPLOY

import qbull
from conftest import eventually
from needed_tools import needs_tool
from topology import Node, free_port

BUILDS = has_docker() or has_overlays()
CHECK = test_image.last("HEALTHCHECK").listed
MAX_SIZE_MB = 200
"""Of the environment with qbull and what it needs; the rest is the base image."""

pytestmark = [
    needs_tool(BUILDS, "there is neither a Docker daemon, nor root with npm to run the steps of the image"),
    pytest.mark.xdist_group("image"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image of the sample application: the three lines that the page of deploy/ gives."""
    directory = tmp_path_factory.mktemp("image")
    more, layers = directory / "shop", directory / "layers"
    shutil.copytree(DEPLOY / "shop", more, ignore=shutil.ignore_patterns("__pycache__"))
    layers.mkdir()
    said = re.search(r"Your own image is three lines: (.+)\.\n", (DEPLOY / "README.md").read_text())
    assert said is not None
    (more / "Dockerfile").write_text("\n".join(re.findall(r"`([^`]+)`", said[1])) + "\n")
    built = DockerImage(more) if has_docker() else OverlayImage(more, layers)
    yield built
    built.remove()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    """A server that any user can reach."""
    node = Node(tmp_path / "server", 'save ""\n', password=None)
    node.start()
    await asyncio.to_thread(node.tell_when_up, "PING")
    yield f"redis://127.0.0.1:{node.port}"
    node.kill()


def start(image: Image, server: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    command = image.command({"QBULL_URL": server, "QBULL_PREFIX": "test", **variables}, *arguments)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    return said


def inside(image: Image, *program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(image.inside(*program), capture_output=True, text=True, timeout=60, check=False)


async def test_a_worker_runs_jobs_as_nobody_special_on_a_root_that_is_read_only(
    image: Image, server: str
) -> None:
    async with qbull.App(server, prefix="test") as app:

        @app.queue("messages", order="key", concurrency=20).task(key="{phone}")
        async def send(phone: str, text: str) -> str: ...

        worker = start(image, server)
        try:

            async def is_healthy() -> bool:
                return (await asyncio.to_thread(inside, image, *CHECK, "--ready")).returncode == 0

            await eventually(is_healthy, within=120)
            result = await (await send.enqueue("+1", "hello")).result(timeout=60)
            who = inside(image, "id", "-u").stdout.strip()
            wrote = [
                inside(image, "sh", "-c", f"echo x > {place}/written").returncode == 0
                for place in ("/app", "/opt/qbull", "/etc", "/tmp")
            ]
            megabytes = int(inside(image, "du", "-sm", "/opt/qbull").stdout.split()[0])
            health = inside(image, *CHECK).returncode
        finally:
            said = stop(worker)

    assert result == "sent to +1: hello"
    assert (who, health) == ("10001", 0)
    assert wrote == [False, False, False, True]
    assert worker.returncode == 0, said
    assert '"level"' in said, "the log of a container is JSON"
    assert megabytes < MAX_SIZE_MB


async def test_the_same_image_serves_the_dashboard_and_is_no_healthy_worker(
    image: Image, server: str
) -> None:
    port = free_port()

    def page() -> str:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ui/", timeout=10) as answer,
        ):
            return str(answer.read().decode())
        return ""

    serve = start(
        image, server, "serve", "shop:app", "--port", str(port), QUEUES_UI_PASS="a-long-password-of-yours"
    )
    try:
        found = await eventually(lambda: asyncio.to_thread(page), within=120)
        health = inside(image, *CHECK).returncode
    finally:
        stop(serve)

    assert "<title>" in found and "/assets/" in found
    assert health == 1
