"""What deploy/ starts is started here: the same commands with the same variables, on a real server, until they have run a job."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_compose
import test_image
import test_kubernetes
import test_services
from reading import DEPLOY, unit, variables

import qbull
from conftest import eventually
from qbull.store.store import Store

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
    procfile = (DEPLOY / "Procfile").read_text().removeprefix("worker: qbull ")
    yield pytest.param(shlex.split(re.sub(r"\$\{\w+:-(\w+)\}", r"\1", procfile)), {}, id="procfile")


@pytest.fixture
def here(server_url: str, store: Store) -> dict[str, str]:
    """The environment of a process that is to use the test's server, which is empty."""
    return {**os.environ, "QBULL_URL": server_url, "QBULL_PREFIX": "test"}


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
            read = await eventually(lambda: partitions_read(app))
            health = await asyncio.to_thread(
                subprocess.run, [*QBULL, "workers", "--here"], env={**env, **here}
            )
            jobs = await send.enqueue_many([{"phone": f"+{n}", "text": "hello"} for n in range(64)])
            mine = [job for job in jobs if (await job.info()).partition in read]
            results = [await job.result(timeout=20) for job in mine]
        finally:
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=30)

    assert worker.returncode == 0, said
    assert health.returncode == 0
    assert results and all(result.endswith(": hello") for result in results)
    assert not re.search("warning|error", said, re.IGNORECASE), said


def declared(app: qbull.App, partitions: int) -> Any:
    """The sample's task, as a program would declare it that only enqueues."""

    @app.queue("messages", order="key", concurrency=20, partitions=partitions).task(key="{phone}")
    async def send(phone: str, text: str) -> str: ...

    return send


async def partitions_read(app: qbull.App) -> set[int]:
    living = await app.client().store.workers()
    served = [member.queues["messages"] for member in living.values() if "messages" in member.queues]
    return {number for serving in served for number in serving.partitions}
