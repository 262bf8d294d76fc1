"""The embedded server on a disk that is too small: what is said before it starts, and what happens when the disk fills up while it runs."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import qbull
from qbull.embedded import disk
from qbull.embedded.server import EmbeddedServer
from qbull.store import retry
from small_disk import fill, mount_small_disk  # noqa: F401 - one is a fixture


def test_a_start_on_a_full_disk_is_refused(small_disk: Path) -> None:
    fill(small_disk, leave=500_000)

    with pytest.raises(qbull.EmbeddedError, match=r"data: its disk is full \(0\.5 MB free\).*make room"):
        EmbeddedServer.open(small_disk / "data")

    (small_disk / "filler").unlink()
    EmbeddedServer.open(small_disk / "data").close()


def test_a_start_on_a_small_disk_is_warned_of_once(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="qbull")

    first, second = EmbeddedServer.open(small_disk / "data"), EmbeddedServer.open(small_disk / "data")
    second.close()
    first.close()

    [said] = [record.getMessage() for record in caplog.records if "disk" in record.getMessage()]
    assert "data: its disk has 8." in said and said.endswith("make room before nothing can be enqueued")


def test_a_large_disk_is_not_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if shutil.disk_usage(tmp_path).free < disk.LOW_FREE_DISK_BYTES:
        pytest.skip("the disk of the tests is small")

    EmbeddedServer.open(tmp_path / "data").close()

    assert caplog.records == []


@pytest.mark.timeout(90)
async def test_a_disk_that_fills_up_is_said_and_work_goes_on_when_there_is_room(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "SERVER_RETRY_SECONDS", 1.0)
    app = qbull.App(f"embedded://{small_disk / 'data'}")
    queue = app.queue("work")

    @queue.task
    async def note(text: str) -> str:
        return text[:1]

    kept = [await note.enqueue(text="a"), await note.enqueue(text="b")]
    fill(small_disk)
    with pytest.raises(qbull.ServerError) as refused:
        for _ in range(1000):
            await note.enqueue(text="x" * 10_000)
    log = (small_disk / "data" / "server.log").read_text(errors="replace")
    (small_disk / "filler").unlink()
    monkeypatch.setattr(retry, "SERVER_RETRY_SECONDS", 20.0)
    later = await note.enqueue(text="c")

    assert "AOF write error" in log
    assert "it ended: Can't recover from AOF write error" in str(refused.value)
    assert "its disk is full" in str(refused.value) and "make room" in str(refused.value)
    async with app.worker() as worker:
        await worker.drain()
    assert [await job.result(1) for job in (*kept, later)] == ["a", "b", "c"]
    await app.close()
