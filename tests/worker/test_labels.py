"""Labels and resources with real `qbull worker` commands, whose processes are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import labelled_app
import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store
from qbull.worker.host_tokens import HostTokens

GPU = {"QBULL_LABELS": "gpu=a100"}


@pytest.fixture
async def fleet(server_url: str, store: Store, tmp_path: Path) -> AsyncIterator[Any]:
    """Starts `qbull worker` commands; `app` is their app in this process."""
    stack = AsyncExitStack()
    environment = os.environ | {
        "LABELLED_APP_URL": server_url,
        "LABELLED_APP_LOG": str(tmp_path / "log"),
        "QBULL_RESOURCE_DIR": str(tmp_path / "tokens"),
        "QBULL_MIN_IDLE_TIME_MS": "2000",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }

    @asynccontextmanager
    async def command(*options: str, **more: str) -> AsyncIterator[subprocess.Popen[bytes]]:
        argv = [sys.executable, "-m", "qbull.cli.main", "worker", "labelled_app:app", "--grace", "5"]
        with (tmp_path / "out").open("ab") as output:
            process = subprocess.Popen(
                [*argv, *options], env=environment | more, stdout=output, stderr=output
            )
        try:
            yield process
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 60)

    async def start(*options: str, **more: str) -> subprocess.Popen[bytes]:
        before = len(await store.workers())
        process: subprocess.Popen[bytes] = await stack.enter_async_context(command(*options, **more))

        async def is_ready() -> bool:
            assert process.poll() is None, (tmp_path / "out").read_text()
            return len(await store.workers()) > before

        await eventually(is_ready, within=60)
        return process

    labelled_app.app._use_address(server_url)
    async with stack:
        yield start
    await labelled_app.app.close()


def lines(tmp_path: Path) -> list[list[str]]:
    log = tmp_path / "log"
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def children(process: subprocess.Popen[bytes]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


async def all_done(jobs: list[qbull.Job[Any]]) -> bool:
    return {(await job.info()).state for job in jobs} == {"completed"}


async def kill_until_done(
    commands: list[subprocess.Popen[bytes]], jobs: list[qbull.Job[Any]], kills: int
) -> None:
    """Kill worker processes while the jobs run."""
    chance = random.Random(7)
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.3, 0.8))
        victims = children(chance.choice(commands))
        if victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
    await eventually(lambda: all_done(jobs), within=90)


async def test_no_job_starts_on_a_worker_without_its_label_and_keys_stay_in_order(
    fleet: Any, tmp_path: Path
) -> None:
    commands = [await fleet("--queues", "films", "--processes", "2"), await fleet("--queues", "films", **GPU)]
    jobs = [
        await (labelled_app.render if n % 2 else labelled_app.notify).enqueue(film, n)
        for n in range(40)
        for film in ("a", "b", "c")
    ]
    await kill_until_done(commands, jobs, 4)

    ran = [line for line in lines(tmp_path) if line[0] == "ran"]
    assert {labels for _, task, _, _, labels in ran if task == "render"} == {"gpu=a100"}
    for film in "abc":
        numbers = [int(n) for _, _, each, n, _ in ran if each == film]
        assert list(dict.fromkeys(numbers)) == list(range(40))
        assert numbers == sorted(numbers)


async def test_tokens_are_never_held_twice_by_commands_of_one_host_whose_processes_are_killed(
    fleet: Any, tmp_path: Path
) -> None:
    given = ("--queues", "models", "--processes", "2", "--resource", "gpu=2")
    commands = [await fleet(*given), await fleet(*given)]
    tasks = [labelled_app.on_the_loop, labelled_app.in_a_thread, labelled_app.in_a_process]
    jobs = [await task.enqueue() for _ in range(8) for task in tasks]
    await kill_until_done(commands, jobs, 4)

    assert [line for line in lines(tmp_path) if line[0] == "twice"] == []
    assert len({line[2] for line in lines(tmp_path) if line[0] == "done"}) == 24
    assert {path.suffix for path in (tmp_path / "tokens").iterdir()} == {".0", ".1"}


async def test_a_suspect_takes_its_tokens_in_the_quarantine_process(fleet: Any, tmp_path: Path) -> None:
    await fleet("--queues", "models", "--resource", "gpu=1", "--label", "gpu=a100")
    job = await labelled_app.crash_twice.enqueue(str(tmp_path / "runs"))
    assert await job.result(timeout=60) == [0]
    assert (tmp_path / "runs").read_text() == "xxx"


async def test_a_debugged_worker_has_labels_and_resources_too(fleet: Any, tmp_path: Path) -> None:
    await fleet("--debug", "--label", "gpu=a100", "--resource", "gpu=1")
    for job in [await labelled_app.render.enqueue("a", 0), await labelled_app.in_a_process.enqueue()]:
        await job.result(timeout=60)


async def test_the_command_refuses_labels_that_nobody_could_ask_for(tmp_path: Path) -> None:
    for option in (["--label", "gpu"], ["--resource", "gpu=x"]):
        argv = [sys.executable, "-m", "qbull.cli.main", "worker", "labelled_app:app", *option]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
        ended = await asyncio.to_thread(subprocess.run, argv, env=environment, capture_output=True)
        assert ended.returncode == 1
        assert b"gpu" in ended.stderr


def test_a_token_is_not_free_while_the_process_that_uses_it_outlives_its_worker(tmp_path: Path) -> None:
    tokens = HostTokens({"gpu": 1}, str(tmp_path))
    user = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = os.fork()
    if worker == 0:
        held = tokens.acquire({"gpu": 1})
        assert held is not None
        held.runs_in(user.pid)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(worker, 0)

    assert tokens.acquire({"gpu": 1}) is None
    user.communicate(b"\n")
    assert tokens.acquire({"gpu": 1}) is not None


def test_tokens_are_taken_all_or_none(tmp_path: Path) -> None:
    tokens = HostTokens({"gpu": 2, "licence": 1}, str(tmp_path))
    one = tokens.acquire({"gpu": 1, "licence": 1})
    assert one is not None
    assert one.numbers == {"gpu": [0], "licence": [0]}
    assert tokens.acquire({"gpu": 1, "licence": 1}) is None
    other = tokens.acquire({"gpu": 1})
    assert other is not None
    assert other.numbers == {"gpu": [1]}
    one.release()
    assert tokens.acquire({"gpu": 1, "licence": 1}) is not None


def test_a_token_file_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    tokens = HostTokens({"gpu": 1}, str(tmp_path / "tokens"))
    tokens.open()
    (tmp_path / "tokens" / "gpu.0").unlink()
    (tmp_path / "tokens").rmdir()
    assert tokens.are_free({"gpu": 1})


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(qbull.ConfigError, match="QBULL_RESOURCE_DIR"):
        HostTokens({"gpu": 1}, str(tmp_path / "file")).open()
