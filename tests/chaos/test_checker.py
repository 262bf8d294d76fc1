"""The checks that concern all kinds of load can fail, too: refusals, orphans, excuses, dead letters without a cause, totals."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import process_table
import pytest
from checker import Checker, Found
from circumstances import SECOND, Circumstances
from history import ACK, BEGUN, DONE, HEAD, RUN, Book
from job_plan import KEYS, WELL, plan_of
from loads.record import Event
from process_table import OrphanWatch, owners_of

KEY = next(key for key in range(KEYS) if plan_of(key, 0) == WELL)
A, B = 101, 102


class History:
    """A campaign that never was: a producer has sent one job of a key, and a process has run it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.faults = Book(directory / "faults.words")
        Book(directory / "0.sent").write(HEAD.pack(0, 1, 0, 0) + KEY.to_bytes(4, "little"))
        Book(directory / "0.acks").write(ACK.pack(0, 1, 0, SECOND))
        self.runs(A, 1.0, 1.001)

    def runs(self, process: int, began: float, ended: float) -> None:
        book = Book(self.directory / f"{process}-{began}.runs")
        book.write(RUN.pack(BEGUN, 1, 0, KEY, 0, int(began * SECOND)))
        book.write(RUN.pack(DONE, 1, 0, KEY, 0, int(ended * SECOND)))

    def event(self, load: str, what: str, job: str, **facts: Any) -> None:
        event = Event(SECOND, load, what, job, A, "", 0, facts)
        Book(self.directory / f"{what}-{job}.events").write(msgspec.json.encode(event) + b"\n")

    def broken(self, **found: Any) -> list[str]:
        return Checker(self.directory, Found(completed={"work": 1}, **found)).check().broken()


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_a_history_without_a_fault_is_accepted(history: History) -> None:
    assert history.broken() == []


def test_a_lost_job_and_a_wrong_total_are_seen(history: History) -> None:
    for path in history.directory.glob("*.runs"):
        path.unlink()

    lost, books = history.broken()

    assert lost.startswith("lost: 1") and "1 completed, 0 done" in books


def test_a_refusal_is_right_only_from_a_server_without_memory(history: History) -> None:
    words = Book(history.directory / "sender-0.words")
    words.write(
        b'{"at": %d, "error": "ServerRefused", "jobs": 1, "text": "the server is out of memory"}\n'
        % (2 * SECOND)
    )

    assert "refused by a correct server: 1" in history.broken()[0]

    history.faults.say(kind="out of memory", began=SECOND, ended=2 * SECOND)
    assert history.broken() == []

    words.write(
        b'{"at": %d, "error": "ServerRefused", "jobs": 1, "text": "CONFIG SET appendonly yes"}\n'
        % (2 * SECOND)
    )
    assert "CONFIG SET appendonly" in history.broken()[0]


def test_a_sequence_that_nobody_was_told_to_be_new_is_seen(history: History) -> None:
    Book(history.directory / "sender-0.words").say(untold=["7:1"])

    assert history.broken() == ["nobody was told that they are new: 1, such as ['7:1']"]


def test_a_dead_letter_of_a_crash_has_a_killed_process(history: History) -> None:
    id = f"{KEY}:0"

    assert "nobody killed one that ran it" in history.broken(crashed=[id])[0]

    history.faults.say(kind="kill process", began=SECOND, ended=SECOND, pids=[A], at_ns=SECOND + 1_500_000)
    assert history.broken(crashed=[id]) == []


def test_every_job_of_a_small_queue_ends_once(history: History) -> None:
    for what in ("asked", "told", "began", "done"):
        history.event("rates", what, "rates:1", created=True)

    assert history.broken(ended={"rates": 1}) == []
    assert 'queue "rates": 0 ended, 1 acknowledged' in history.broken(ended={"rates": 0})[0]
    assert 'queue "rates": 2 ended, 1 acknowledged, 1 sent' in history.broken(ended={"rates": 2})[0]


def test_excuses_are_bounded_by_what_the_nemesis_did(tmp_path: Path) -> None:
    checker = Checker(tmp_path, Found())
    checker.verdict.excused["killed"] = 1
    checker._excuses()

    assert checker.verdict.excesses == ["1 runs excused as killed, which happened 0 times"]


def test_a_moved_slot_is_no_failover() -> None:
    looks = [{"owners": [1, 1], "before": 0, "since": 0}, {"owners": [1, 2], "before": 20, "since": 30}]
    moved = {"kind": "move slot", "partition": 1, "began": 10, "ended": 40}

    assert Circumstances(looks).failovers == 1
    assert Circumstances([*looks, moved]).failovers == 0
    assert Circumstances([*looks, moved | {"partition": 0}]).failovers == 1


def test_a_process_that_runs_on_without_its_parent_is_an_orphan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_table, "ORPHAN_SECONDS", 0.1)
    child = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'input()']).pid, flush=True); input()"
    environment = os.environ | {"CHAOS_DIRECTORY": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", child],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None and parent.stdout is not None
    orphan = int(parent.stdout.readline())
    watch = OrphanWatch(tmp_path)
    (tmp_path / f"{orphan}-1.events").touch()

    watch.look([parent.pid])
    assert watch.found == {}, "its parent lives"

    parent.kill()
    parent.wait()
    until = time.monotonic() + 20
    while not watch.found and time.monotonic() < until:
        watch.look([])
    parent.stdin.close()
    parent.stdout.close()
    assert list(watch.found) == [orphan]


def test_it_is_known_whose_connection_was_struck() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        port = client.getsockname()[1]

        assert owners_of([port], {os.getpid(): [7, 8]}) == {os.getpid(), 7, 8}, (
            "a supervisor, and so its workers"
        )
        assert owners_of([port], {1 << 22: [os.getpid(), 8]}) == {os.getpid()}, "one worker"
        assert owners_of([], {os.getpid(): [7, 8]}) == set()
