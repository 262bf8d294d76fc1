"""Results in a directory: whole or not at all, never outside of it, and gone when they are old."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest

import qbull


async def test_what_was_put_is_got(tmp_path: Path) -> None:
    results = qbull.FileResults(tmp_path)

    references = await asyncio.gather(*(results.put("q", "id/../x", bytes([n])) for n in range(50)))

    assert len(set(references)) == 50
    assert [await results.get(reference) for reference in references] == [bytes([n]) for n in range(50)]
    assert list(tmp_path.rglob(".*")) == []


async def test_only_its_owner_can_read_a_result(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        reference = await qbull.FileResults(tmp_path / "results").put("q", "id", b"secret")
    finally:
        os.umask(before)

    file = tmp_path / "results" / reference
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, file.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


@pytest.mark.parametrize(
    "reference", ["../secret", "1/../../secret", "secret", "", "1/", "1/.q-half", "/etc/passwd", "1/a/b"]
)
async def test_nothing_outside_is_read(tmp_path: Path, reference: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "results" / "1").mkdir(parents=True)
    (tmp_path / "results" / "1" / ".q-half").write_text("half")

    with pytest.raises(qbull.NotFound):
        await qbull.FileResults(tmp_path / "results").get(reference)


async def test_what_is_old_goes_and_what_is_not_stays(tmp_path: Path) -> None:
    hour = int(time.time() // 3600)
    for age in (0, 20, 30, 1000):
        (tmp_path / str(hour - age)).mkdir()
        (tmp_path / str(hour - age) / "q-old").write_text("old")
    (tmp_path / "notes.txt").write_text("not ours")

    await qbull.FileResults(tmp_path, keep_for=86_400).put("q", "id", b"new")

    assert {path.name for path in tmp_path.iterdir()} == {str(hour), str(hour - 20), "notes.txt"}


@pytest.mark.parametrize("options", [{"over": -1}, {"keep_for": 0}, {"keep_for": -5}])
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, int]) -> None:
    with pytest.raises(qbull.ConfigError, match="FileResults"):
        qbull.FileResults(tmp_path, **options)
