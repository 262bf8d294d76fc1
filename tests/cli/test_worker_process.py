"""`qbull worker` as a process: what signals do to it, and to the jobs it has."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell, seen  # noqa: F401 - two are fixtures


@pytest.fixture
def mark(tmp_path: Path) -> str:
    """A job that is given it says <mark>.begun, and ends when there is <mark>.go."""
    return str(tmp_path / "mark")


def has_begun(mark: str) -> None:
    seen(Path(f"{mark}.begun").exists)


def may_go(mark: str) -> None:
    Path(f"{mark}.go").touch()


def is_stopping(shell: Shell) -> None:
    seen(lambda: "stopping" in shell.err)


def send(process: subprocess.Popen[str], name: signal.Signals, to: str) -> None:
    if to == "group":
        os.killpg(process.pid, name)
    else:
        process.send_signal(name)


@pytest.mark.parametrize("to", ["parent", "group"])
@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_jobs_end_and_hands_back_the_others(
    shell: Shell, sample: SampleApp, mark: str, name: signal.Signals, to: str
) -> None:
    running, *others = [await sample.wait_for.enqueue(mark=mark) for _ in range(4)]
    worker = shell.start("worker", "sample_app", "--queues", "slow")
    has_begun(mark)

    send(worker, name, to)
    is_stopping(shell)
    may_go(mark)

    assert worker.wait(20) == 0
    assert await running.result(0) == "went"
    assert [await job.state() for job in others] == ["waiting"] * 3
    assert shell.json("workers") == []


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_an_idle_worker_ends_at_once(shell: Shell, sample: SampleApp, processes: str) -> None:
    worker = shell.start("worker", "sample_app", "--processes", processes)
    seen(lambda: len(shell.json("workers")) == int(processes))

    worker.terminate()

    assert worker.wait(10) == 0
    assert shell.json("workers") == []


async def test_a_job_that_does_not_end_in_time_is_handed_back(
    shell: Shell, sample: SampleApp, mark: str
) -> None:
    job = await sample.wait_for.enqueue(mark=mark)
    worker = shell.start("worker", "sample_app", "--queues", "slow", "--grace", "0.1")
    has_begun(mark)

    worker.terminate()

    assert worker.wait(20) == 0
    assert await job.state() == "waiting"


@pytest.mark.parametrize("to", ["parent", "group"])
async def test_a_second_ctrl_c_ends_at_once(shell: Shell, sample: SampleApp, mark: str, to: str) -> None:
    job = await sample.wait_for.enqueue(mark=mark)
    worker = shell.start("worker", "sample_app", "--queues", "slow", "--grace", "60")
    has_begun(mark)

    send(worker, signal.SIGINT, to)
    is_stopping(shell)
    send(worker, signal.SIGINT, to)

    assert worker.wait(10) != 0
    assert await job.state() == "waiting"


async def test_a_worker_process_that_is_killed_is_replaced_and_its_job_runs_again(
    shell: Shell, sample: SampleApp, mark: str
) -> None:
    job = await sample.wait_for.enqueue(mark=mark)
    worker = shell.start("worker", "sample_app", "--queues", "slow")
    has_begun(mark)
    [process] = seen(lambda: shell.json("workers"))

    os.kill(process["pid"], signal.SIGKILL)
    may_go(mark)

    assert await job.result(30) == "went"
    worker.terminate()
    assert worker.wait(20) == 0


async def test_the_worker_processes_end_when_their_parent_is_killed(
    shell: Shell, sample: SampleApp, mark: str
) -> None:
    worker = shell.start("worker", "sample_app", "--queues", "slow", MIN_IDLE_TIME_MS="1000")
    [process] = seen(lambda: shell.json("workers"))

    worker.kill()
    worker.wait()

    seen(lambda: not Path(f"/proc/{process['pid']}").exists())


@pytest.mark.parametrize("to", ["parent", "group"])
async def test_a_job_in_the_process_pool_ends_too(
    shell: Shell, sample: SampleApp, mark: str, to: str
) -> None:
    job = await sample.block_for.enqueue(mark=mark)
    worker = shell.start("worker", "sample_app", "--queues", "slow")
    has_begun(mark)

    send(worker, signal.SIGTERM, to)
    is_stopping(shell)
    may_go(mark)

    assert worker.wait(20) == 0
    assert await job.result(0) == "went"
    assert "Traceback" not in shell.err
