"""`qbull worker` that is started before its server, as containers are: it waits, says so once, and ends at once when told to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

import pytest
from later import AWAY, BACK, claim_a_place, url_of  # noqa: F401 - one is a fixture
from sample_app import SampleApp
from shell import QBULL, Shell, open_shell, seen  # noqa: F401 - one is a fixture

import qbull
from qbull.cli.worker_options import WorkerOptions, worker_process_argv
from qbull.core.sharing import Sharing
from qbull.worker.process.channel import TakeRole, pack_message
from qbull.worker.process.child import ProcessHandles
from qbull.worker.process.crash_board import CrashBoard, board_slots_for
from topology import Node


async def test_a_worker_waits_for_a_server_that_is_started_later(shell: Shell, later: Node) -> None:
    worker = shell.start("worker", "sample_app", QBULL_URL=url_of(later))
    seen(lambda: AWAY in shell.err)

    later.start()
    later.tell_when_up("PING")
    app = qbull.App(url_of(later), prefix="test")
    job = await SampleApp(app).send.enqueue(to="a")

    assert await job.result(30) == "1 sent to a"
    await app.close()
    worker.terminate()
    assert worker.wait(20) == 0
    assert (shell.err.count(AWAY), shell.err.count(BACK)) == (1, 1)


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_server_ends_at_once(
    shell: Shell, later: Node, name: signal.Signals
) -> None:
    worker = shell.start("worker", "sample_app", QBULL_URL=url_of(later))
    seen(lambda: AWAY in shell.err)

    worker.send_signal(name)

    assert worker.wait(10) == 0
    assert "Traceback" not in shell.err and BACK not in shell.err


def test_a_server_that_was_waited_for_and_refuses_ends_it(shell: Shell, later: Node) -> None:
    worker = shell.start("worker", "sample_app", QBULL_URL=url_of(later, "wrong"))
    seen(lambda: AWAY in shell.err)

    later.start()

    assert worker.wait(30) == 1
    said = shell.err.splitlines()[-1]
    assert said.startswith("qbull: ") and "refused the user or password" in said


@pytest.mark.parametrize("comes", [False, True])
async def test_a_worker_process_waits_too(shell: Shell, later: Node, comes: bool) -> None:
    app = qbull.App(url_of(later), prefix="test")
    sample = SampleApp(app)
    board, (theirs, ours) = CrashBoard.make(board_slots_for(sample.email.settings.concurrency)), os.pipe()
    here, there = socket.socketpair()
    options = WorkerOptions("sample_app", 5.0, Sharing(), ["email"])
    with (shell.directory / "err").open("w") as err:
        process = subprocess.Popen(
            worker_process_argv(options, "w1", ProcessHandles(board.fd, theirs, there.fileno())),
            env={**shell.environment, "QBULL_URL": url_of(later)},
            pass_fds=(board.fd, theirs, there.fileno()),
            stderr=err,
            start_new_session=True,
            text=True,
        )
    shell.started.append(process)
    here.sendall(pack_message(TakeRole(Sharing())))
    seen(lambda: AWAY in shell.err)

    if comes:
        later.start()
        later.tell_when_up("PING")
        assert await (await sample.send.enqueue(to="a")).result(30) == "1 sent to a"
    process.terminate()

    assert process.wait(20) == 0
    assert "Traceback" not in shell.err and shell.err.count(BACK) == comes
    await app.close()
    os.close(ours)
    os.close(theirs)
    here.close()
    there.close()
    board.close()


async def test_a_worker_whose_server_has_gone_ends_when_it_is_told_to(shell: Shell, later: Node) -> None:
    later.start()
    later.tell_when_up("PING")
    worker = shell.start("worker", "sample_app", "--queues", "email", QBULL_URL=url_of(later))
    seen(lambda: later.tell("KEYS", "*workers*"))
    later.kill()
    seen(lambda: AWAY in shell.err)

    worker.terminate()

    assert worker.wait(30) == 0
