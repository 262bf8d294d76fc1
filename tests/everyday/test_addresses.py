"""An address names the server that people mean, and a wrong one is reported in one line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import everyday_app
import pytest
from program import WorkerProgram

import qbull
from qbull.errors import ConfigError
from qbull.store.store import Store
from topology import PASSWORD, Cluster, raised_cluster

HERE = Path(__file__).parent
UNREACHED = "redis://127.0.0.1:1/0"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with raised_cluster(tmp_path) as cluster:
        yield cluster


def run_worker(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`qbull worker` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "qbull.cli.main", "worker", "everyday_app:app"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(HERE), "EVERYDAY_LOG": str(directory / "log"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.timeout(120)
async def test_jobs_run_if_redis_names_one_node_of_a_cluster(cluster: Cluster) -> None:
    app = qbull.App(f"redis://:{PASSWORD}@{cluster.nodes[0].place}/0", prefix="test")
    work = app.queue("work", partitions=8)

    @work.task
    async def double(number: int) -> int:
        return 2 * number

    jobs = [await double.enqueue(number=number) for number in range(20)]
    async with app.worker():
        results = await asyncio.gather(*(job.result(60) for job in jobs))

    assert results == [2 * number for number in range(20)]
    await app.close()


@pytest.mark.timeout(60)
async def test_the_first_line_of_a_worker_names_its_server_without_the_password(
    tmp_path: Path, store: Store, server_url: str
) -> None:
    async with WorkerProgram(server_url, tmp_path / "log") as program:
        first = program.text().splitlines()[0]

    queues = ", ".join(everyday_app.app.queues)
    assert first.startswith(f"qbull worker: 1 process for {queues} at ")
    assert store.server.address.shown in first


def test_a_worker_without_an_address_says_where_its_embedded_server_is(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import qbull\napp = qbull.App()\napp.queue('work')\n")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("QBULL_URL", "REDIS_URL")
    }
    with subprocess.Popen(
        [sys.executable, "-m", "qbull.cli.main", "worker", "plain:app"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.terminate()

    assert (
        f"at an embedded server in {tmp_path}/.qbull, because neither QBULL_URL nor REDIS_URL is set" in first
    )


@pytest.mark.parametrize("name", ["QBULL_URL", "REDIS_URL"])
def test_an_empty_address_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QBULL_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv(name, "")

    with pytest.raises(ConfigError, match=f"^{name} is empty; set it to the server's address"):
        qbull.App()
    assert qbull.App(UNREACHED).url == UNREACHED


def test_an_empty_address_in_the_code_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the server's address is empty"):
        qbull.App("")


def test_an_empty_address_does_not_matter_if_the_other_variable_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QBULL_URL", "")
    monkeypatch.setenv("REDIS_URL", UNREACHED)

    assert qbull.App().url == UNREACHED


@pytest.mark.parametrize("count", ["3", "many"])
def test_an_instance_count_without_an_id_matters_to_workers_only(
    count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSTANCE_COUNT", count)
    app = qbull.App(UNREACHED)
    app.queue("work")

    with pytest.raises(ConfigError, match="INSTANCE_COUNT="):
        app.worker()


@pytest.mark.timeout(120)
async def test_a_wrong_number_of_partitions_ends_the_worker_with_one_line(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everyday_app.app, "url", server_url)
    await everyday_app.quick.enqueue(number=0)
    await everyday_app.app.close()

    ended = await asyncio.to_thread(run_worker, tmp_path, EVERYDAY_URL=server_url, TOTAL_PARTITIONS="3")

    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        'qbull: queue "free": partitions=3 but the server has 1; run "qbull repartition free 3" or set partitions=1'
    ]
