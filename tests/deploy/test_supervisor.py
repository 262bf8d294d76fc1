"""deploy/supervisor: a real supervisord runs the worker and the server as they stand in the file."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import shlex
import shutil
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from reading import AFTER_GRACE, DEPLOY, parsed
from supervising import read_configuration, supervised

import qbull
from conftest import eventually
from qbull.store.store import Store
from topology import free_port

FILE = DEPLOY / "supervisor" / "qbull.conf"
PROGRAMS = ["program:qbull-worker", "program:qbull-serve"]


def command(program: str) -> list[str]:
    """The arguments of qbull."""
    shell, flag, script = shlex.split(read_configuration(FILE.read_text())[program]["command"])
    assert (shell, flag) == ("/bin/sh", "-c")
    setting, line = script.split(" && exec ")
    assert setting == "set -a && . /etc/qbull/worker.env"
    first, *arguments = shlex.split(line)
    assert first == "/opt/qbull/bin/qbull"
    return arguments


def test_its_programs_are_commands_of_qbull_with_time_to_stop() -> None:
    configuration = read_configuration(FILE.read_text())
    worker, options = parsed(command(PROGRAMS[0]))

    assert configuration.sections() == PROGRAMS
    assert (worker, parsed(command(PROGRAMS[1]))[0]) == ("worker", "serve")
    assert int(configuration[PROGRAMS[0]]["stopwaitsecs"]) >= options["grace"] + AFTER_GRACE
    for name in PROGRAMS:
        assert configuration[name]["user"] == "qbull"
        assert configuration[name]["killasgroup"] == "true"


@pytest.mark.timeout(180)
async def test_supervisord_runs_the_worker_and_the_server(
    server_url: str, store: Store, tmp_path: Path
) -> None:
    port = free_port()
    shutil.copy(DEPLOY / "shop" / "shop.py", tmp_path)
    (tmp_path / "worker.env").write_text(
        f"QBULL_URL='{server_url}'\nQBULL_PREFIX=test\nTOTAL_PARTITIONS=4\nQUEUES_UI_PASS=a-long-password\n"
    )
    programs = FILE.read_text()
    for name, here in {
        "/etc/qbull": str(tmp_path),
        "/opt/qbull/bin/qbull": f"{sys.executable} -m qbull.cli.main",
        "/srv/shop": str(tmp_path),
        "/var/log/supervisor": str(tmp_path),
        "user=qbull": f"user={getpass.getuser()}",
        "--port 3050": f"--port {port}",
    }.items():
        assert name in programs
        programs = programs.replace(name, here)
    file = tmp_path / "supervisord.conf"
    file.write_text(f"[supervisord]\n\n{programs}")

    def is_served() -> bool:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer,
        ):
            return bool(answer.status == 200)
        return False

    async with qbull.App(server_url, prefix="test") as app:

        @app.queue("messages", order="key", concurrency=20, partitions=4).task(key="{phone}")
        async def send(phone: str, text: str) -> str: ...

        with supervised(file, {**os.environ, "TMPDIR": str(tmp_path)}, wanted=2) as supervisord:
            job = await send.enqueue("+1", "hello")
            result = await job.result(timeout=60)
            assert await eventually(lambda: asyncio.to_thread(is_served), within=60)

    assert result.endswith(": hello")
    assert re.search(r"stopped: qbull-worker \(exit status 0\)", supervisord.said), supervisord.said
    assert "killing" not in supervisord.said
