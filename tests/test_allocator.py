"""The embedded server asks jemalloc or tbbmalloc for memory, where one of them is there."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from importlib.metadata import distributions
from pathlib import Path

import pytest
import redis

from qbull.embedded import allocator
from qbull.embedded.allocator import preload
from qbull.embedded.server import EmbeddedServer, _find_server
from qbull.embedded.watchdog import server_environment


@pytest.fixture(autouse=True)
def nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)


def test_the_machines_own_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "libjemalloc.so.2").touch()

    monkeypatch.setattr(allocator, "LIBRARY_FOLDERS", (str(tmp_path / "missing"), str(empty), str(full)))

    assert preload() == str(full / "libjemalloc.so.2")


def test_without_one_and_without_the_extra_the_server_is_started_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allocator, "LIBRARY_FOLDERS", ())
    monkeypatch.setattr(allocator, "ALLOCATOR_PACKAGE", "no-such-distribution")

    assert preload() == ""
    assert "LD_PRELOAD" not in server_environment(preload())


def test_what_somebody_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "mine.so")

    assert server_environment("libjemalloc.so.2")["LD_PRELOAD"] == "mine.so"


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64",
    reason="the extra has libraries for Linux on x86-64 only",
)
@pytest.mark.skipif(
    not any(distributions(name=allocator.ALLOCATOR_PACKAGE)),
    reason="tbb is not free software, so it is installed only if asked for: requirements/allocator.txt",
)
def test_the_extra_brings_one_and_the_server_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "LIBRARY_FOLDERS", ())

    with closing(EmbeddedServer.open(tmp_path / "server")) as embedded:
        server = redis.Redis(unix_socket_path=str(embedded.socket), password=embedded.password)
        with closing(server):
            loaded = Path(f"/proc/{server.info('server')['process_id']}/maps").read_text()

    assert [Path(library).name for library in preload().split(":")] == [
        "libtbbmalloc.so.2",
        "libtbbmalloc_proxy.so.2",
    ]
    assert all(library in loaded for library in preload().split(":"))


def test_an_allocator_that_ends_the_server_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choosy = tmp_path / "choosy"
    choosy.write_text(f'#!/bin/sh\n[ -n "$LD_PRELOAD" ] && exit 1\nexec "{_find_server()}" "$@"\n')
    choosy.chmod(0o700)
    monkeypatch.setenv("QBULL_VALKEY_SERVER", str(choosy))
    monkeypatch.setattr("qbull.embedded.server.preload", lambda: "an-allocator.so")

    with closing(EmbeddedServer.open(tmp_path / "server")) as embedded:
        server = redis.Redis(unix_socket_path=str(embedded.socket), password=embedded.password)
        with closing(server):
            assert server.ping()
