"""systemd and health checks learn how a worker is doing: real datagrams, real programs."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import qbull_alive
from qbull.environment import SystemdSettings, systemd_settings
from qbull.worker.process.service_status import ServiceState, ServiceStatus

PATIENCE_SECONDS = 30.0
ALIVE = [sys.executable, "-m", "qbull_alive"]


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


class Systemd:
    """The socket of systemd."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.lines: list[str] = []

    def until(self, line: str) -> list[str]:
        """All lines up to this one."""
        end = time.monotonic() + PATIENCE_SECONDS
        while line not in self.lines:
            assert time.monotonic() < end, f"{line} was not sent: {self.lines[-9:]}"
            self.lines += self.socket.recv(4096).decode().splitlines()
        return self.lines


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@qbull-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def systemd(address: str) -> Iterator[Systemd]:
    systemd = Systemd(address)
    yield systemd
    systemd.socket.close()


async def test_systemd_hears_of_the_start_and_the_end_and_every_beat(systemd: Systemd, address: str) -> None:
    state: ServiceState = "waiting"
    changed = asyncio.Event()

    async with ServiceStatus(lambda: state, changed, SystemdSettings(address, 0.3)):
        waiting = await asyncio.to_thread(systemd.until, "WATCHDOG=1")
        assert "READY=1" not in waiting
        assert {"STATUS=waiting for the server", "EXTEND_TIMEOUT_USEC=60000000"} <= set(waiting)
        state = "ready"
        changed.set()
        await asyncio.to_thread(systemd.until, "READY=1")
        systemd.lines.clear()
        await asyncio.to_thread(systemd.until, "WATCHDOG=1")
        assert "READY=1" not in systemd.lines
        state = "stopping"
        changed.set()
        await asyncio.to_thread(systemd.until, "STOPPING=1")


async def test_without_systemd_nothing_is_sent_and_a_socket_that_is_gone_is_no_failure(
    tmp_path: Path,
) -> None:
    for settings in (SystemdSettings(), SystemdSettings(str(tmp_path / "gone"), 0.1)):
        async with ServiceStatus(lambda: "ready", asyncio.Event(), settings) as status:
            status.report("ready")
            assert qbull_alive.states() == ["ready"]

    assert qbull_alive.states() == []


async def test_a_directory_that_cannot_be_written_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))

    async with ServiceStatus(lambda: "ready", asyncio.Event(), SystemdSettings()) as status:
        status.report("ready")

    assert qbull_alive.states() == []


def test_the_watchdog_of_another_process_is_not_ours() -> None:
    assert systemd_settings({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "30000000"}) == SystemdSettings(
        "@x", 30.0
    )
    assert systemd_settings({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}) == SystemdSettings()
    assert systemd_settings({"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "soon"}) == SystemdSettings()


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ALIVE, *arguments], capture_output=True, text=True)


def test_the_probe_sees_fresh_files_of_workers_only() -> None:
    assert check().returncode == 1
    assert "none has reported for 30 seconds" in check().stderr
    directory = Path(qbull_alive.status_directory())
    directory.mkdir(mode=0o700)
    (directory / "worker-1").write_text("waiting\n")
    os.utime(directory / "worker-1", (time.time() - 31, time.time() - 31))
    assert check().returncode == 1

    os.utime(directory / "worker-1")
    assert (check().returncode, check().stdout) == (0, "waiting\n")
    assert (check("--ready").returncode, check("--ready").stderr) == (
        1,
        "no worker of this machine is ready: it is waiting; see its log\n",
    )
    (directory / "worker-2").write_text("ready\n")
    assert check("--ready").returncode == 0
    assert (check("--help").returncode, check("--redy").returncode) == (0, 2)


def test_the_probe_imports_nothing_of_qbull_and_costs_little() -> None:
    look = "import sys, qbull_alive; print([name for name in sys.modules if name.startswith(('qbull.', 'redis'))])"
    assert subprocess.check_output([sys.executable, "-c", look], text=True) == "[]\n"

    def cost(arguments: list[str]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # A busy machine makes both slower; the fastest of a few is the cost.
    python = min(cost([sys.executable, "-c", "pass"]) for _ in range(5))
    assert min(cost(ALIVE) for _ in range(5)) < python + 0.03


APP = """
import qbull
app = qbull.App(prefix="own")
mail = app.queue("mail")

@mail.task
def send() -> None: ...
"""


def test_a_worker_whose_prefix_is_in_its_code_is_found_and_tells_systemd(
    server_url: str, store: object, tmp_path: Path
) -> None:
    (tmp_path / "mailer.py").write_text(APP)
    systemd = Systemd(str(tmp_path / "notify"))
    env = {
        **os.environ,
        "QBULL_URL": server_url,
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "30000000",
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "qbull", "worker", "mailer:app"], cwd=tmp_path, env=env, stderr=subprocess.PIPE
    )
    try:
        systemd.until("READY=1")
        assert check("--ready").returncode == 0
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=PATIENCE_SECONDS)

    assert "STOPPING=1" in systemd.until("STOPPING=1")
    assert "STATUS=letting running jobs finish" in systemd.lines
    assert worker.returncode == 0
    assert check().returncode == 1
    systemd.socket.close()
