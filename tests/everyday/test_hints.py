"""Where newcomers stumble, the error says what to write instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import qbull
from qbull.errors import ArgumentsError, DeclarationError, ResultTimeout

UNREACHED = "redis://127.0.0.1:1/0"


@pytest.fixture
def tasks(app: qbull.App) -> qbull.Task[[str, int], str]:
    work = app.queue("work")

    @work.task
    async def greet(user: str, times: int = 1) -> str:
        return f"hello {user}" * times

    return greet


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("delay", r"greet\.enqueue"),
        ("apply_async", r"greet\.options\(delay=60\)\.enqueue"),
        ("send", r"greet\.enqueue"),
        ("s", r"greet\.step"),
        ("si", r"greet\.step"),
        ("retry", r"qbull\.Retry"),
        ("defer", r"greet\.enqueue"),
    ],
)
def test_a_call_of_another_library_names_the_call_to_use(
    tasks: qbull.Task[[str, int], str], name: str, hint: str
) -> None:
    with pytest.raises(AttributeError, match=hint):
        getattr(tasks, name)


def test_an_unknown_attribute_of_a_task_is_an_ordinary_error(tasks: qbull.Task[[str, int], str]) -> None:
    assert not hasattr(tasks, "__wrapped_by_nobody__")
    with pytest.raises(AttributeError, match="'AsyncTask' object has no attribute 'nothing'"):
        _ = tasks.nothing  # type: ignore[attr-defined]


def test_a_task_of_the_app_is_declared_on_a_queue(app: qbull.App) -> None:
    with pytest.raises(AttributeError, match=r"app\.queue\(.*@queue\.task"):
        _ = app.task  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'App' object has no attribute 'nothing'"):
        _ = app.nothing  # type: ignore[attr-defined]


async def test_an_option_among_the_arguments_belongs_to_options(
    tasks: qbull.Task[[str, int], str],
) -> None:
    with pytest.raises(ArgumentsError, match=r"'delay' is an option.*\.options\(delay=…\)\.enqueue"):
        await tasks.enqueue("ada", delay=60)  # type: ignore[call-arg]


async def test_an_unknown_argument_is_named(tasks: qbull.Task[[str, int], str]) -> None:
    with pytest.raises(ArgumentsError, match=r"'usr'.*did you mean 'user'"):
        await tasks.enqueue(usr="ada")  # type: ignore[call-arg]
    with pytest.raises(ArgumentsError, match=r"'colour'.*it takes: user, times"):
        await tasks.enqueue("ada", colour="red")  # type: ignore[call-arg]


async def test_many_jobs_are_given_as_arguments_by_name(tasks: qbull.Task[[str, int], str]) -> None:
    with pytest.raises(ArgumentsError, match=r"call 1 is 'ada'.*\{\"user\": …, \"times\": …\}"):
        await tasks.enqueue_many(["ada"])  # type: ignore[list-item]


async def test_waiting_in_vain_says_that_no_worker_serves_the_queue(
    tasks: qbull.Task[[str, int], str],
) -> None:
    job = await tasks.enqueue("ada")

    with pytest.raises(
        ResultTimeout, match=r'has not finished within 0\.05 s: no live worker serves queue "work"'
    ):
        await job.result(timeout=0.05)


@pytest.mark.parametrize(("name", "hint"), [("enqueue", r"@queue\.task"), ("add", r"app\.send\(")])
def test_a_queue_names_the_call_to_use(app: qbull.App, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"'Queue' object has no attribute '{name}'; .*{hint}"):
        getattr(app.queue("work"), name)
    with pytest.raises(AttributeError, match=r"'App' object has no attribute 'enqueue'; .*@queue\.task"):
        _ = app.enqueue  # type: ignore[attr-defined]


async def test_a_job_names_the_call_to_use(tasks: qbull.Task[[str, int], str]) -> None:
    job = await tasks.enqueue("ada", 1)

    for name, hint in (("get", r"app\.run_sync\(job\.result\("), ("get_status", r"await job\.state\(\)")):
        with pytest.raises(AttributeError, match=hint):
            getattr(job, name)
    with pytest.raises(AttributeError, match=r"'Job' object has no attribute 'nothing'$"):
        _ = job.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(("foreign", "own"), [("countdown", "delay"), ("eta", "at"), ("job_id", "id")])
async def test_an_option_of_another_queue_names_the_one_to_use(tasks: Any, foreign: str, own: str) -> None:
    with pytest.raises(qbull.ArgumentsError, match=rf"argument '{foreign}'; write greet\.options\({own}=…\)"):
        await tasks.enqueue("ada", **{foreign: 60})


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"retries": 3}, r"@queue\.task\(retries=3\): is no setting of a task; use retry=qbull\.Retry"),
        ({"timout": 3}, "did you mean timeout="),
        ({"colour": 3}, "there is: name, id, key"),
    ],
)
def test_an_unknown_setting_of_a_task_is_named(app: qbull.App, given: dict[str, int], hint: str) -> None:
    with pytest.raises(DeclarationError, match=hint):
        app.queue("work").task(**given)  # type: ignore[call-overload]


def test_a_cpu_task_inside_a_function_is_refused_where_it_is_declared(app: qbull.App) -> None:
    def crunch(n: int) -> int:
        return n

    with pytest.raises(DeclarationError, match=r"<locals>\.crunch; move it to the top of its module"):
        app.queue("work").task(cpu=True)(crunch)


SCRIPT_WITH_CPU_TASK = """
import qbull

app = qbull.App()


@app.queue("work").task(cpu=True)
def crunch(n: int) -> int:
    return n


print("declared")
"""


def test_a_cpu_task_of_the_script_that_runs_is_refused_where_it_is_declared(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT_WITH_CPU_TASK)

    ended = subprocess.run(
        [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert 'shop.py", line 7, in <module>' in ended.stderr
    assert ended.stderr.splitlines()[-1] == (
        'qbull.errors.DeclarationError: task "crunch": a process of cpu=True imports the task from its '
        'module, and cannot import "__main__", the script that runs; '
        "move the task into a module of its own and import it here"
    )


def test_a_script_may_use_the_cpu_tasks_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT_WITH_CPU_TASK)

    ended = subprocess.run(
        [sys.executable, "-c", "from shop import crunch; print(crunch.spec.kind)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )

    assert ended.stdout.split() == ["declared", "process"]


@pytest.mark.timeout(60)
def test_an_unavailable_server_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import asyncio, qbull\n"
        f"app = qbull.App({UNREACHED!r})\n"
        "@app.queue('q').task\n"
        "async def greet(user: str) -> None: ...\n"
        "asyncio.run(greet.enqueue('ada'))\n"
    )

    ended = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )

    assert ended.stderr.splitlines()[-1].startswith(
        f"qbull.errors.ServerAway: {UNREACHED}: cannot be reached"
    )
    assert ended.stderr.splitlines()[-1].endswith("start it, or correct the address")
    assert "qbull/store" not in ended.stderr and "During handling" not in ended.stderr
