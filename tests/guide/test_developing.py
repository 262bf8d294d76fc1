"""A project from nothing, and a day's work on it: written, tested, run, changed, broken, mended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from dev_project import DevProject, open_short_path  # noqa: F401 - one is a fixture
from shell import Shell, seen


@pytest.mark.timeout(300)
def test_a_project_is_written_tested_run_changed_broken_and_mended(short_path: Path) -> None:
    said = Shell("", short_path).ok("init", "my-shop")
    project = DevProject(short_path / "my-shop", "my_shop.tasks:app", "my_shop/tasks.py")
    code = project.file.read_text()
    assert [line.partition("#")[0].strip() for line in said.splitlines()[1:]] == [
        *("cd my-shop", 'pip install -e ".[test]"'),
        *("qbull dev my_shop.tasks:app", "python -m my_shop.send", "python -m pytest"),
    ]
    assert "3 passed" in python(project, "pytest")
    assert "All checks passed!" in python(project, "ruff", "check", ".")
    assert "already formatted" in python(project, "ruff", "format", "--check", ".")
    assert "no issues found" in python(project, "mypy", "--strict", ".")

    dev = project.dev()
    with project.api() as api:
        sent = python(project, "my_shop.send")
        assert sent == "packed tea for ada\ncharged ada 12.50\npacked cups for bob\n"
        assert [job["attempt"] for job in jobs(api, "charge")] == [2]

        project.save(code.replace('f"packed {item}', 'f"wrapped {item}'))
        project.said("my_shop/tasks.py changed, reloaded")
        assert "wrapped tea for ada" in python(project, "my_shop.send")
        assert {job["result"] for job in jobs(api, "pack")} == {
            *("packed tea for ada", "packed cups for bob"),
            *("wrapped tea for ada", "wrapped cups for bob"),
        }

        project.save(code.replace('"orders", order="key"', '"orders", order="kye"'))
        project.said(
            r"the previous version keeps running until the next save\n  my_shop/tasks.py, line 11\n.*\n.*kye"
        )
        order = {"task": "pack", "payload": {"customer": "eve", "item": "tea"}}
        assert api.post("/queues/orders/jobs", json=order).status_code == 202
        seen(lambda: "wrapped tea for eve" in [job["result"] for job in jobs(api, "pack")], within=60)

        project.save(code.replace('f"packed {item}', 'f"boxed {item}'))
        seen(lambda: project.shell.err.count("my_shop/tasks.py changed, reloaded") == 2, within=60)
        assert "boxed tea for ada" in python(project, "my_shop.send")

    dev.send_signal(signal.SIGINT)
    assert dev.wait(30) == 0
    assert project.left_behind() == []


def python(project: DevProject, module: str, *arguments: str) -> str:
    """What `python -m` prints there."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=project.directory, env=project.shell.environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def jobs(api: httpx.Client, task: str) -> list[dict[str, Any]]:
    """The completed ones."""
    answer = api.get("/queues/orders/jobs", params={"state": "completed", "end": 100})
    return [job for job in answer.json()["jobs"] if job["task"] == task]
