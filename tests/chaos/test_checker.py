"""The checks that concern all kinds of load can fail, too: refusals, orphans, excuses, dead letters without a cause, totals."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import process_table
import pytest
from checker import Checker, Found
from circumstances import SECOND, Circumstances
from history import ACK, BEGUN, DEAD, DONE, HEAD, RUN, Book
from job_plan import KEYS, LATER, WELL, plan_of
from loads.record import Event
from loads.transfers import Books
from nemesis import OPERATIONS, Nemesis, Pace, spread_over
from process_table import OrphanWatch, owners_of
from processor_time import ProcessorTime
from progress import Progress

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


def sent_too(history: History, key: int, kind: int, began: float, delay_ms: int = 0) -> None:
    """Another producer has sent one job of another key, and a process has run it."""
    Book(history.directory / "1.sent").write(HEAD.pack(0, 1, delay_ms, 0) + key.to_bytes(4, "little"))
    Book(history.directory / "1.acks").write(ACK.pack(0, 1, 0, SECOND))
    book = Book(history.directory / f"{B}-0.runs")
    book.write(RUN.pack(BEGUN, 1, 0, key, 0, int(began * SECOND)))
    book.write(RUN.pack(kind, 1, 0, key, 0, int(began * SECOND) + 1000))


def test_a_job_that_was_never_sent_is_seen(history: History) -> None:
    book = Book(history.directory / f"{A}-2.runs")
    book.write(RUN.pack(BEGUN, 1, 0, KEY, 1, 2 * SECOND))
    book.write(RUN.pack(BEGUN, 1, 0, KEY + 1, 0, 2 * SECOND))

    assert any(broken.startswith("run but never sent: 2") for broken in history.broken())


def test_a_job_that_starts_before_its_delay_is_over_is_seen(history: History) -> None:
    sent_too(history, LATER, DONE, 0.9, delay_ms=1000)

    early, books = history.broken()
    assert "due after 1000 ms, begun after 900" in early and "1 completed, 2 done" in books


def test_dead_letters_are_exactly_those_that_never_succeed(history: History) -> None:
    key = next(key for key in range(100_000) if plan_of(key, 0).letter == "never")
    sent_too(history, key, DEAD, 1.0)
    letter = f"{key}:0"

    assert history.broken(failed=[letter]) == []
    lost, missing = history.broken()
    assert lost.startswith("lost: 1") and f"dead letter {letter} is missing" in missing
    assert "there 2 times" in history.broken(failed=[letter, letter])[0]
    assert f"{KEY}:0 is a dead letter without a reason" in history.broken(failed=[letter, f"{KEY}:0"])[0]


def test_what_the_servers_say_at_the_end_counts(history: History) -> None:
    for word, found in {
        "not worked off": {"unfinished": {"work": 1}},
        "audit": {"audit": ["a job is in two places"]},
        "leaked names": {"leaked": ["{test:work:0}:lane:x"]},
        "orphans": {"orphans": ["7: python"]},
        "money": {"money": Books(faults=["transfers: 1 missing"])},
    }.items():
        assert history.broken(**found)[0].startswith(f"{word}: 1")


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


def test_a_call_about_an_existing_job_is_not_refused_either(history: History) -> None:
    history.event("cancels", "refused", "cancels:1", error="ServerRefused", text="CONFIG SET appendonly yes")

    assert any("refused by a correct server: 1" in broken for broken in history.broken())


def test_a_called_job_that_runs_twice_at_once_is_seen(history: History) -> None:
    for at_ns in (SECOND, 2 * SECOND):
        event = Event(at_ns, "called", "began", "child", A)
        Book(history.directory / f"{at_ns}.events").write(msgspec.json.encode(event) + b"\n")

    assert "child ran twice at once in process" in history.broken()[0]


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


@pytest.mark.parametrize("topology", ["single", "sentinel", "cluster"])
def test_no_seed_leaves_out_what_operators_do(topology: str) -> None:
    for seed in range(100):
        nemesis = Nemesis(Mock(lacks={}), Mock(), Mock(lacks={}), Mock(), seed, lambda: 0)
        nemesis.choose(topology)
        drawn = {kind for kinds in nemesis.kinds for kind in kinds}
        assert drawn >= set(OPERATIONS) - (set() if topology == "cluster" else {"move slot"})


def test_faults_are_spread_over_all_jobs_that_are_asked_for() -> None:
    paces = (Pace(1.0, 1_000), Pace(2.0, 500))

    assert spread_over(paces, 300_000, 300) == (Pace(1.0, 3_000), Pace(2.0, 1_500))
    assert spread_over(paces, 300_000, 2_000) == paces, "they are never faster"
    assert spread_over(paces, 0, 2_000) == paces and spread_over(paces, 300_000, 0) == paces


def test_progress_reads_what_was_added(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    events, other = tmp_path / "1-1.events", tmp_path / "2-1.events"
    step = msgspec.json.encode(Event(1, "durable", "step", "durable:1", A)) + b"\n"
    events.write_bytes(step + step + step[:9])
    (tmp_path / "0.acks").write_bytes(ACK.pack(0, 1, 0, 0) * 2)
    (tmp_path / "1-1.runs").write_bytes(RUN.pack(BEGUN, 1, 0, 0, 0, 0) * 6)
    progress.look()

    assert (progress.acknowledged, progress.started, progress.steps) == (750, 3, 2)

    events.write_bytes(step * 3)
    told = [Event(1, load, "told", "j", A) for load in ("rates", "flows", "unique", "same ids")]
    other.write_bytes(step + b"".join(msgspec.json.encode(event) + b"\n" for event in told))
    progress.look()
    assert (progress.acknowledged, progress.steps) == (752, 4), (
        "calls of which several have one job do not count"
    )


def test_processor_time_is_told_for_each_kind_of_process() -> None:
    busy = "import sys; any(n < 0 for n in range(10**7)); print('sender.py', flush=True); sys.stdin.read()"
    time_used = ProcessorTime()
    child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    child.stdout.readline()
    time_used.look()
    child.stdin.close()
    child.stdout.close()
    child.wait()

    assert re.search(r"producers \d+ %", str(time_used)) and re.search(r"idle \d+ %", str(time_used))


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
