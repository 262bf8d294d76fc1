"""Debugging: breakpoints in a worker, one job in the foreground, and cells that declare a task again."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from shell import QBULL, Shell, open_shell  # noqa: F401 - one is a fixture

import qbull
from conftest import eventually

PROGRAM = """
import asyncio, os, time
import qbull

app = qbull.App()
orders = app.queue("orders", retry=qbull.Retry(attempts=1))


@app.lifespan(cpu=True)
def rates():
    yield {"cents": 100}


@orders.task(timeout=0.5)
async def charge(order_id: int) -> str:
    secret = order_id * 111
    breakpoint()
    return f"charged {order_id}"


@orders.task(timeout=0.5)
def render(order_id: int) -> int:
    breakpoint()
    charge.check(1)
    return os.getpid()


@orders.task(cpu=True, timeout=0.5)
def weigh(order_id: int) -> list[int]:
    time.sleep(1)
    return [os.getpid(), rates.value["cents"]]


@orders.task(cpu=True)
def stop_there(order_id: int) -> None:
    breakpoint()


@orders.task
async def fail(order_id: int, reason: str) -> None:
    job = qbull.current_job()
    await job.progress(50)
    await job.log(f"attempt {job.attempt}")
    raise ValueError(f"order {order_id}: {reason}")


@orders.task
def double(order_id: int) -> int:
    return 2 * order_id
"""


@pytest.fixture(name="orders")
def write_program(shell: Shell, app: qbull.App) -> qbull.Queue:
    (shell.directory / "orders_app.py").write_text(PROGRAM)
    return app.queue("orders", retry=qbull.Retry(attempts=1))


def task(orders: qbull.Queue, name: str) -> qbull.Task[..., object]:
    @orders.task(name=name)
    async def declared(order_id: int, reason: str = "") -> object: ...

    return declared


def debug(shell: Shell, *command: str, **environment: str) -> subprocess.Popen[str]:
    """A process with a standard input, as a terminal gives it."""
    with (shell.directory / "out").open("w") as out, (shell.directory / "err").open("w") as err:
        process = subprocess.Popen(
            [*QBULL, *command],
            cwd=shell.directory,
            env={**shell.environment, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )
    shell.started.append(process)
    return process


async def says(shell: Shell, text: str) -> bool:
    return text in shell.out


def tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


@pytest.mark.timeout(120)
async def test_a_breakpoint_in_a_coroutine_holds_the_job_and_no_other_worker_takes_it(
    shell: Shell, app: qbull.App, orders: qbull.Queue
) -> None:
    job = await task(orders, "charge").enqueue(order_id=7)
    process = debug(shell, "worker", "orders_app:app", "--debug", MIN_IDLE_TIME_MS="1000")
    await eventually(lambda: says(shell, "(Pdb)"), within=60)

    since = time.monotonic()
    first = await job.info()
    assert first is not None

    async def still_held() -> bool:
        """Long after a worker without heartbeats would have lost it."""
        info = await job.info()
        assert info is not None
        assert (info.state, info.worker, info.crashes) == ("active", first.worker, 0)
        assert info.worker in await app._client().store.workers()
        return time.monotonic() - since > 4

    await eventually(still_held, within=60)
    tell(process, "p secret\nc\n")
    assert await job.result(timeout=60) == "charged 7"
    process.terminate()

    assert process.wait(30) == 0
    assert "777" in shell.out
    assert "blocked" not in shell.err


@pytest.mark.timeout(120)
async def test_plain_and_cpu_tasks_run_in_the_same_process_without_timeouts(
    shell: Shell, orders: qbull.Queue
) -> None:
    plain = await task(orders, "render").enqueue(order_id=1)
    cpu = await task(orders, "weigh").enqueue(order_id=2)
    process = debug(shell, "worker", "orders_app:app", "--debug")
    await eventually(lambda: says(shell, "(Pdb)"), within=60)
    tell(process, "c\n")

    assert await plain.result(timeout=60) == process.pid
    assert await cpu.result(timeout=60) == [process.pid, 100]
    process.terminate()
    assert process.wait(30) == 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["charge", "stop_there"])
async def test_a_breakpoint_without_a_terminal_fails_with_a_hint(
    shell: Shell, orders: qbull.Queue, name: str
) -> None:
    job = await task(orders, name).enqueue(order_id=7)
    process = shell.start("worker", "orders_app:app")

    with pytest.raises(qbull.JobFailed) as failed:
        await job.result(timeout=60)
    process.terminate()
    process.wait(30)

    assert "breakpoint() needs a terminal" in failed.value.error
    assert "--debug" in failed.value.error


@pytest.mark.timeout(120)
async def test_dev_has_its_dashboard_beside_a_breakpoint(shell: Shell, orders: qbull.Queue) -> None:
    import httpx

    job = await task(orders, "charge").enqueue(order_id=7)
    process = debug(
        shell, "dev", "orders_app:app", "--debug", "--port", "0", QUEUES_UI_PASS="a-long-password"
    )
    await eventually(lambda: says(shell, "(Pdb)"), within=60)
    url = next(word for word in shell.err.split() if word.startswith("http://")).rstrip(",")
    answer = await httpx.AsyncClient().get(url.removesuffix("/ui") + "/healthz", timeout=30)
    tell(process, "c\n")

    assert answer.status_code == 200
    assert await job.result(timeout=60) == "charged 7"
    process.terminate()
    assert process.wait(30) == 0


@pytest.mark.timeout(120)
async def test_one_job_runs_in_the_foreground_and_stays_as_it_is(
    shell: Shell, app: qbull.App, orders: qbull.Queue
) -> None:
    @orders.task(name="fail")
    async def failing(order_id: int, reason: str) -> None:
        raise OSError("it was the network")

    job = await failing.enqueue(order_id=7, reason="no stock")
    async with app.worker() as worker:
        await worker.drain()
    before = await job.info()

    # Not shell.run, which takes a traceback for a fault: this one is the task's.
    done = subprocess.run(
        [*QBULL, "run-job", "orders", job.id, "-A", "orders_app:app"],
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    assert "ValueError: order 7: no stock" in done.stderr
    assert "progress: 50 %" in done.stderr
    assert "log: attempt 1" in done.stderr
    assert await job.info() == before


@pytest.mark.timeout(120)
async def test_a_job_that_has_not_ended_runs_only_if_asked_twice(shell: Shell, orders: qbull.Queue) -> None:
    job = await task(orders, "double").enqueue(order_id=21)

    refused = shell.refused("run-job", "orders", job.id, "-A", "orders_app:app")
    assert "is waiting, so a worker may run it too" in refused
    assert shell.ok("run-job", "orders", job.id, "-A", "orders_app:app", "--anyway") == "42\n"
    assert "no job nobody" in shell.refused("run-job", "orders", "nobody", "-A", "orders_app:app")

    assert await job.state() == "waiting"
    await job.remove()


NOTEBOOK = """
    import sys, __main__
    import qbull
    __main__.get_ipython = lambda: None     # As IPython has it.
    app = qbull.App()
    cell = '''
    queue = app.queue("numbers")
    @queue.task
    async def double(n: int) -> int:
        return FACTOR * n
    @queue.cron("0 9 * * *")
    def morning() -> None: ...
    '''
    import asyncio, textwrap
    for FACTOR in (2, 3):
        exec(textwrap.dedent(cell).replace("FACTOR", str(FACTOR)))
    print(asyncio.run(queue.tasks["double"].function(7)))
    def double(n: str) -> str: return n
    double.__qualname__ = "another.double"
    try:
        queue.task(double)
    except qbull.DeclarationError as error:
        print("refused:", error)
    del __main__.get_ipython
    try:
        exec(textwrap.dedent(cell).replace("FACTOR", "4"))
    except qbull.ConfigError as error:
        print("refused:", error)
"""


def test_a_cell_that_runs_again_replaces_its_tasks(tmp_path: Path) -> None:
    program = tmp_path / "notebook.py"
    program.write_text(textwrap.dedent(NOTEBOOK))

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, cwd=tmp_path)

    assert done.stdout.splitlines() == [
        "21",
        'refused: queue "numbers": task "double" is there twice; give one of them another name=…',
        'refused: queue "numbers": declared twice; keep one declaration and import it',
    ], done.stderr
