"""dev: the newest version of the code is at work, a broken one is not, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from dev_project import DevProject, open_project, open_short_path  # noqa: F401 - two are fixtures
from shell import seen

from qbull.cli.dev.files import FileWatcher

SHOP = """\
import asyncio
import time
from pathlib import Path

import qbull

app = qbull.App()
orders = app.queue("orders", order="key", retry=qbull.Retry(attempts=1))


@orders.task(key="{customer}")
async def charge(customer: str) -> str:
    return f"one {customer}"


@orders.task
async def wait_for(mark: str) -> str:
    Path(f"{mark}.begun").touch()
    while not Path(f"{mark}.go").exists():
        await asyncio.sleep(0.01)
    return "one went"


@orders.task
def block() -> None:
    Path("block.begun").touch()
    time.sleep(60)
"""


def enqueue(api: httpx.Client, task: str, **payload: str) -> str:
    answer = api.post("/queues/orders/jobs", json={"task": task, "payload": payload})
    assert answer.status_code == 202, answer.text
    id: str = answer.json()["jobId"]
    return id


def result(api: httpx.Client, id: str) -> Any:
    job = seen(
        lambda: (
            (job := api.get(f"/queues/orders/jobs/{id}").json())["state"] in ("completed", "failed") and job
        ),
        within=60,
    )
    return job["result"]


def test_a_save_is_at_work_and_what_cannot_be_loaded_is_reported(project: DevProject) -> None:
    project.save(SHOP)
    dev = project.dev()
    with project.api() as api:
        assert result(api, enqueue(api, "charge", customer="ada")) == "one ada"

        project.save(SHOP.replace('f"one', 'f"two'))  # as long as before, perhaps within the same second
        project.said("shop.py changed, reloaded")
        assert result(api, enqueue(api, "charge", customer="ada")) == "two ada"

        project.save(SHOP.replace('f"one', 'f"six').replace("customer: str)", "customer: str"))
        project.said(
            r"shop.py changed, but the app cannot be loaded; the previous version keeps running until the next save"
        )
        assert project.said(r"  shop.py, line 12\n.*async def charge.*\n.*\^\n  SyntaxError: .*\n")
        assert result(api, enqueue(api, "charge", customer="ada")) == "two ada"

        project.save(
            SHOP.replace('f"one', 'f"ten').replace('"orders", order', '"orders", partitions=3, order')
        )
        project.said(r'  queue "orders": partitions=3 but the server has 1; run "qbull repartition orders 3"')

        project.save(SHOP.replace('f"one', 'f"new') + '\n\nmail = app.queue("mail")\n')
        project.said(r"queues      orders \(3 tasks, in order by key\); mail \(0 tasks\)")
        assert result(api, enqueue(api, "charge", customer="ada")) == "new ada"

    dev.send_signal(signal.SIGINT)
    assert dev.wait(30) == 0
    assert project.left_behind() == []
    assert "Traceback" not in project.shell.err


def test_what_runs_ends_in_its_version_or_is_given_back_to_the_next(project: DevProject) -> None:
    project.save(SHOP)
    project.dev("--grace", "2")
    with project.api() as api:
        ends, stays = enqueue(api, "wait_for", mark="ends"), enqueue(api, "wait_for", mark="stays")
        seen(
            lambda: (
                (project.directory / "ends.begun").exists() and (project.directory / "stays.begun").exists()
            )
        )

        project.save(SHOP.replace("one went", "two went"))
        project.said("shop.py changed, reloaded")
        (project.directory / "stays.begun").unlink()
        (project.directory / "ends.go").touch()
        assert result(api, ends) == "one went"
        seen(lambda: (project.directory / "stays.begun").exists())
        (project.directory / "stays.go").touch()

        assert result(api, stays) == "two went"


def test_killed_with_a_running_job_it_leaves_nothing_behind(project: DevProject) -> None:
    project.save(SHOP)
    dev = project.dev("--grace", "0")
    with project.api() as api:
        enqueue(api, "wait_for", mark="never")
        seen(lambda: (project.directory / "never.begun").exists())

    dev.kill()

    seen(lambda: not project.left_behind(), within=60)


def test_a_second_signal_does_not_wait_for_jobs(project: DevProject) -> None:
    project.save(SHOP)
    dev = project.dev("--grace", "600")
    with project.api() as api:
        enqueue(api, "block")
        seen(lambda: (project.directory / "block.begun").exists())

    dev.send_signal(signal.SIGINT)
    project.said("stopping; running jobs have 600 s to finish, press Ctrl-C again to stop at once")
    dev.send_signal(signal.SIGINT)

    assert dev.wait(30) == 1
    assert project.left_behind() == []


def test_code_that_is_broken_from_the_start_is_awaited(project: DevProject, server_url: str) -> None:
    project.save("import qbull\n\napp = qbull.App()\napp.queue('mail', order='kye')\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}: Address already in use" in project.shell.refused(
            "dev", "shop:app", "--port", port
        )
    dev = project.dev("--port", port, QBULL_URL=server_url, QBULL_PREFIX="dev")
    project.said("the app cannot be loaded; nothing runs until the next save\n  shop.py, line 4\n.*\n.*kye")

    project.save(SHOP)
    with project.api() as api:
        assert str(api.base_url) == f"http://127.0.0.1:{port}/api/"
        assert result(api, enqueue(api, "charge", customer="ada")) == "one ada"

    assert project.said(r"server      unix://\S+\n") and not (project.directory / ".qbull").exists()
    dev.send_signal(signal.SIGTERM)
    assert dev.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing:app"], 'no module "nothing"'),
        (["shop:orders"], '"orders" is not a qbull.App; apps in this module: app'),
    ],
    ids=str,
)
def test_what_no_save_can_mend_ends_it(project: DevProject, arguments: list[str], said: str) -> None:
    project.save(SHOP)

    assert said in project.shell.refused("dev", *arguments)


async def test_only_saves_of_the_project_count(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "gone.py",
        ".git/a.py",
        "node_modules/a.py",
        "__pycache__/a.py",
        "env/pyvenv.cfg",
        "env/a.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = FileWatcher([tmp_path])

    for name in (".git/a.py", "node_modules/a.py", "__pycache__/a.py", "env/a.py", "notes.txt", ".#a.py"):
        (tmp_path / name).write_text("changed")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new").mkdir()
    (tmp_path / "new/b.py").touch()
    marks = (tmp_path / "a.py").stat()
    shutil.copy2(tmp_path / "a.py", tmp_path / "a.tmp")
    (tmp_path / "a.tmp").replace(tmp_path / "a.py")  # another file with the same time and size
    os.utime(tmp_path / "a.py", ns=(marks.st_mtime_ns, marks.st_mtime_ns))

    assert await files.changed() == [tmp_path / name for name in ("a.py", "gone.py", "new/b.py")]
    again = asyncio.create_task(files.changed())
    (tmp_path / "new/b.py").write_text("changed")
    assert await again == [tmp_path / "new/b.py"]


def test_a_task_that_blocks_the_event_loop_is_named_with_its_stack(project: DevProject) -> None:
    blocking = "\n\n@orders.task\nasync def hog() -> None:\n    time.sleep(2)\n"
    project.save(SHOP + blocking)
    project.dev()
    with project.api() as api:
        id = enqueue(api, "hog")
        said = project.said(r"the event loop has been blocked for ([0-9.]+) s by job (\S+) \(hog\)")
        project.said(r"\n    .*in hog\n")

    assert said.group(2) == id
    assert float(said.group(1)) < 2


def test_the_first_failed_attempt_shows_its_traceback_with_file_and_line(project: DevProject) -> None:
    failing = (
        SHOP.replace("attempts=1", "attempts=3")
        + """

@orders.task(key="{customer}")
async def divide(customer: str) -> float:
    return 1 / 0
"""
    )
    project.save(failing)
    project.dev()
    with project.api() as api:
        enqueue(api, "divide", customer="ada")

        line = failing.splitlines().index("    return 1 / 0") + 1
        assert project.said(rf'File ".*shop\.py", line {line}, in divide\n\s+return 1 / 0\n')
        project.said("ZeroDivisionError: division by zero")


def test_requests_are_answered_while_it_reloads(project: DevProject) -> None:
    project.save(SHOP)
    project.dev()
    answers: list[int | str] = []
    done = threading.Event()

    def ask(client: httpx.Client | None) -> None:
        url = str(address.base_url).replace("/api/", "/healthz")
        while not done.is_set():
            try:
                answers.append((client.get(url) if client else httpx.get(url, trust_env=False)).status_code)
            except httpx.HTTPError as error:
                answers.append(repr(error))

    with project.api() as address, httpx.Client(trust_env=False) as kept, ThreadPoolExecutor() as threads:
        asking = [threads.submit(ask, client) for client in (None, None, kept)]
        for number in ("two", "six", "ten"):
            before = project.shell.err.count("reloaded")
            project.save(SHOP.replace('f"one', f'f"{number}'))
            seen(lambda before=before: project.shell.err.count("reloaded") > before, within=60)  # type: ignore[misc]
        done.set()
        for each in asking:
            each.result()

    assert len(answers) > 10
    assert set(answers) == {200}
