"""What deploy/ starts is started here: the same commands with the same variables, on a real server, until they have run a job."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import test_compose
import test_image
import test_kubernetes
import test_services
import test_swarm
from reading import DEPLOY, unit, variables

import qbull
from conftest import eventually
from qbull.store.store import Store
from topology import free_port

QBULL = [sys.executable, "-m", "qbull.cli.main"]


def started_by() -> Iterator[Any]:
    """Arguments and variables of every worker in deploy/."""
    worker = test_compose.compose().services["worker"]
    yield pytest.param(worker.command, worker.environment, id="compose")
    yield pytest.param(test_image.last("CMD").listed, {}, id="image")
    for case in test_kubernetes.workers():
        workload, container = case.values
        env = test_kubernetes.environment(workload, container, number=3)
        yield pytest.param(container.args, env, id=f"kubernetes-{case.id}")
    for path in test_services.UNITS:
        own = [line.replace("%i", "3") for line in unit(path)["Service"].get("Environment", [])]
        yield pytest.param(test_services.command(path), test_services.shared() | variables(own), id=path.name)
    yield pytest.param(test_services.procfile()["worker"], {}, id="procfile")


def served_by() -> Iterator[Any]:
    """The same of every REST server."""
    serve = test_compose.compose().services["serve"]
    yield pytest.param(serve.command, test_compose.environment("serve"), "127.0.0.1", id="compose")
    swarm = test_swarm.services()["serve"]["command"]
    yield pytest.param(swarm, test_swarm.environment("serve"), "serve", id="swarm")
    yield pytest.param(test_services.procfile()["web"], {}, "127.0.0.1", id="procfile")
    for case in test_kubernetes.everything():
        workload, container = case.values
        if container.args[0] == "serve":
            env = test_kubernetes.environment(workload, container)
            yield pytest.param(container.args, env, "qbull-serve.default", id="kubernetes")


@pytest.fixture
def here(server_url: str, store: Store, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that is to use the test's server, which is empty."""
    return {**os.environ, "QBULL_URL": server_url, "QBULL_PREFIX": "test", "TMPDIR": str(tmp_path)}


async def is_ready(here: dict[str, str]) -> bool:
    probe = [sys.executable, "-m", "qbull_alive", "--ready"]
    return (await asyncio.to_thread(subprocess.run, probe, env=here)).returncode == 0


@pytest.mark.parametrize(("arguments", "env"), list(started_by()))
async def test_a_worker_starts_as_deploy_says_and_runs_jobs(
    arguments: list[str], env: dict[str, str], here: dict[str, str], tmp_path: Path
) -> None:
    shutil.copy(DEPLOY / "shop" / "shop.py", tmp_path)
    async with qbull.App(here["QBULL_URL"], prefix="test") as app:
        send = declared(app, int(env.get("TOTAL_PARTITIONS", "1")))
        worker = subprocess.Popen(
            [*QBULL, *arguments], cwd=tmp_path, env={**env, **here}, stderr=subprocess.PIPE, text=True
        )
        try:
            read = await eventually(lambda: partitions_read(app), within=60)
            assert await eventually(lambda: is_ready(here))
            jobs = await send.enqueue_many([{"phone": f"+{n}", "text": "hello"} for n in range(64)])
            mine = [job for job in jobs if (await job.info()).partition in read]
            results = [await job.result(timeout=20) for job in mine]
        finally:
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=30)

    assert worker.returncode == 0, said
    assert results and all(result.endswith(": hello") for result in results)
    assert not re.search("warning|error", said, re.IGNORECASE), said


SLOW_START = """
import sys
import threading
from pathlib import Path

import qbull

app = qbull.App()


@app.queue("mail").task
async def send() -> None: ...


if any("worker_process" in part for part in sys.orig_argv):
    Path("starting").touch()
    threading.Event().wait(60)
"""


async def test_a_stop_while_a_process_starts_is_no_warning(here: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_START)
    command = [*QBULL, "worker", "slow:app", "--processes", "1"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=here, stderr=subprocess.PIPE, text=True)
    try:
        await eventually(lambda: asyncio.to_thread((tmp_path / "starting").exists), within=60)
    finally:
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=30)

    assert worker.returncode == 0, said
    assert not re.search("warning|error", said, re.IGNORECASE), said


@pytest.mark.parametrize(("arguments", "env", "host"), list(served_by()))
async def test_a_server_starts_as_deploy_says_and_tells_the_backlog(
    arguments: list[str], env: dict[str, str], host: str, here: dict[str, str], tmp_path: Path
) -> None:
    shutil.copy(DEPLOY / "shop" / "shop.py", tmp_path)
    port = free_port()
    token = env.get("QBULL_VIEWER_TOKEN", "a-token-of-some-length")
    arguments = [str(port) if argument == "3050" else argument for argument in arguments]

    def ask(path: str) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Host": f"{host}:3050"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    async def ready() -> bool:
        with suppress(OSError):
            return bool(await asyncio.to_thread(ask, "/readyz"))
        return False

    async with qbull.App(here["QBULL_URL"], prefix="test") as app:
        send = declared(app, int(env.get("TOTAL_PARTITIONS", "1")))
        await send.enqueue_many([{"phone": f"+{n}", "text": "hello"} for n in range(7)])
        environment = {**env, **here, "QBULL_VIEWER_TOKEN": token}
        server = subprocess.Popen(
            [*QBULL, *arguments], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            await eventually(ready)
            alive = await asyncio.to_thread(ask, "/healthz")
            stats = await asyncio.to_thread(ask, "/api/queues/messages/stats")
        finally:
            server.send_signal(signal.SIGTERM)
            _, said = server.communicate(timeout=30)

    assert server.returncode in (0, -signal.SIGTERM), said
    assert alive
    assert stats["waiting"] == 7


def declared(app: qbull.App, partitions: int) -> Any:
    """The sample's task, as a program would declare it that only enqueues."""

    @app.queue("messages", order="key", concurrency=20, partitions=partitions).task(key="{phone}")
    async def send(phone: str, text: str) -> str: ...

    return send


async def partitions_read(app: qbull.App) -> set[int]:
    living = await app._client().store.workers()
    served = [member.queues["messages"] for member in living.values() if "messages" in member.queues]
    return {number for serving in served for number in serving.partitions}
