"""Errors of `cpu=True` tasks: no text ends their process, and the traceback of `Fail` is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import everyday_app
import pytest

import qbull
from qbull.store.store import Store


@pytest.fixture(autouse=True)
async def app(store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[qbull.App]:
    monkeypatch.setattr(everyday_app.app, "url", server_url)
    # Processes of cpu=True tasks import this app too.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    yield everyday_app.app
    await everyday_app.app.close()


async def test_a_lone_surrogate_in_an_error_text_does_not_end_the_process(app: qbull.App) -> None:
    job = await everyday_app.raise_in_process.enqueue(text="odd \\ud800 text")
    async with app.worker(["free"], concurrency=1):
        with pytest.raises(qbull.JobFailed) as raised:
            await job.result(timeout=60)
        again = await (await everyday_app.process_of.enqueue()).result(timeout=60)

    assert raised.value.error.startswith("ValueError: odd ? text of process ")
    assert raised.value.error.endswith(f" {again}")


async def test_fail_in_a_process_keeps_its_traceback(app: qbull.App) -> None:
    job = await everyday_app.fail_in_process.enqueue()
    async with app.worker(["free"]):
        with pytest.raises(qbull.JobFailed) as raised:
            await job.result(timeout=60)

    assert raised.value.error == "no such customer"
    assert "in fail_in_process" in (raised.value.stacktrace or "")
