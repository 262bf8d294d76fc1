"""A project from nothing, and a day's work on it: written, tested, run, changed, broken, mended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from shell import Shell, seen
from workshop import Workshop, open_short_path  # noqa: F401 - one is a fixture


@pytest.mark.timeout(300)
def test_a_project_is_written_tested_run_changed_broken_and_mended(short_path: Path) -> None:
    said = Shell("", short_path).ok("init", "my-shop")
    workshop = Workshop(short_path / "my-shop", "my_shop.tasks:app", "my_shop/tasks.py")
    code = workshop.file.read_text()
    assert [line.partition("#")[0].strip() for line in said.splitlines()[1:]] == [
        *("cd my-shop", 'pip install -e ".[test]"'),
        *("qbull dev my_shop.tasks:app", "python -m my_shop.send", "python -m pytest"),
    ]
    assert "3 passed" in python(workshop, "pytest")
    assert "All checks passed!" in python(workshop, "ruff", "check", ".")
    assert "already formatted" in python(workshop, "ruff", "format", "--check", ".")
    assert "no issues found" in python(workshop, "mypy", "--strict", ".")

    dev = workshop.dev()
    with workshop.api() as api:
        sent = python(workshop, "my_shop.send")
        assert sent == "packed tea for ada\ncharged ada 12.50\npacked cups for bob\n"
        assert [job["attempt"] for job in jobs(api, "charge")] == [2]

        workshop.save(code.replace('f"packed {item}', 'f"wrapped {item}'))
        workshop.said("my_shop/tasks.py changed, reloaded")
        assert "wrapped tea for ada" in python(workshop, "my_shop.send")
        assert {job["result"] for job in jobs(api, "pack")} == {
            *("packed tea for ada", "packed cups for bob"),
            *("wrapped tea for ada", "wrapped cups for bob"),
        }

        workshop.save(code.replace('"orders", order="key"', '"orders", order="kye"'))
        workshop.said(
            r"the previous version keeps running until the next save\n  my_shop/tasks.py, line 11\n.*\n.*kye"
        )
        order = {"task": "pack", "payload": {"customer": "eve", "item": "tea"}}
        assert api.post("/queues/orders/jobs", json=order).status_code == 202
        seen(lambda: "wrapped tea for eve" in [job["result"] for job in jobs(api, "pack")], within=60)

        workshop.save(code.replace('f"packed {item}', 'f"boxed {item}'))
        seen(lambda: workshop.shell.err.count("my_shop/tasks.py changed, reloaded") == 2, within=60)
        assert "boxed tea for ada" in python(workshop, "my_shop.send")

    dev.send_signal(signal.SIGINT)
    assert dev.wait(30) == 0
    assert workshop.left_behind() == []


def python(workshop: Workshop, module: str, *arguments: str) -> str:
    """What `python -m` prints there."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=workshop.directory, env=workshop.shell.environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def jobs(api: httpx.Client, task: str) -> list[dict[str, Any]]:
    """The completed ones."""
    answer = api.get("/queues/orders/jobs", params={"state": "completed", "end": 100})
    return [job for job in answer.json()["jobs"] if job["task"] == task]
