"""From a crontab: the program of the page ticks when the file of the page does, and runs what it names."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from blocks import Page
from croniter import croniter

from qbull.store.store import Store

ZONE = ZoneInfo("Europe/Berlin")


@pytest.fixture
async def chores(
    server_url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Any]:
    monkeypatch.setenv("QBULL_URL", server_url)
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.chdir(tmp_path)
    page = Page("from_crontab", tmp_path, server_url)
    module = page.module("chores", *page.code("The file"))
    file = page.text.partition("```crontab\n")[2].partition("```")[0]
    module.lines = re.findall(r"^((?:\S+ ){4}\S+|@\w+)\s{2,}(.*)$", file, re.MULTILINE)
    yield module
    await module.app.close()


def program(directory: Path, name: str, text: str) -> None:
    path = directory / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


async def test_it_ticks_when_the_file_does(chores: Any) -> None:
    schedules = list(chores.app.declared.values())

    assert len(schedules) == len(chores.lines) == 4
    for schedule, (expression, command) in zip(schedules, chores.lines, strict=True):
        now = datetime(2026, 4, 1, 11, 7, tzinfo=ZONE)
        theirs = croniter(expression, now)
        ours = schedule.ticks(int(now.timestamp() * 1000))
        for tick in itertools.islice(ours, 30):
            assert datetime.fromtimestamp(tick / 1000, UTC) == theirs.get_next(datetime), command


async def test_it_runs_the_programs_of_the_file(chores: Any, tmp_path: Path) -> None:
    program(tmp_path, "clean", 'echo "cleaned $*"')
    program(tmp_path, "sync-stock", "echo no stock >&2; exit 3")

    async with chores.app.worker():
        [cleaned] = [await chores.clean.enqueue(older_than=86400)]
        result = await cleaned.result(timeout=10)
        failing = await chores.sync_stock.enqueue()
        while (info := await failing.info()).state != "delayed":
            pass
        await failing.cancel()

    assert result == "cleaned --older-than 86400\n"
    assert info.history[0].error == "RuntimeError: ./bin/sync-stock ended with 3: no stock\n"
    assert chores.app.declared["clean"].catch_up == "skip"
    assert chores.app.declared["invoice"].catch_up == "one"
