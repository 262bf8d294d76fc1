"""A small campaign, and one that must show losses: a checker that could not see them would prove nothing.

`make chaos` runs the long ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign import Orders, run
from checker import Checker
from history import BEGUN, DEAD, DONE, FAILED, Book, words_in
from key_order import Judge
from nemesis import Pace
from recheck import found_in
from silence import Ears, Moments, silences

OFTEN = (Pace(0.8, 100), Pace(0.6, 100), Pace(2.0, 200))

pytestmark = [pytest.mark.xdist_group("campaign"), pytest.mark.timeout(300)]


def test_every_promise_is_kept_while_anything_fails(tmp_path: Path) -> None:
    orders = Orders(
        seed=7, seconds=6, faults=8, pods=2, senders=2, database=False, behind=1500, drain=200.0, paces=OFTEN
    )  # fmt: skip

    outcome = run(orders, tmp_path)

    assert outcome.verdict.broken() == [], outcome.table
    assert outcome.verdict.acknowledged > 0 and outcome.verdict.ticks > 0, outcome.table
    history = tmp_path / "history"
    found, kept = found_in(history)
    again = Checker(history, found, replicated=found.replicated).check()
    assert kept and again == outcome.verdict, "a history says the same when it is checked again"
    (history / "found.json").unlink()
    assert Checker(history, found_in(history)[0], replicated=False).check().broken() == []


def test_the_same_with_less_durability_loses_jobs_and_is_seen(tmp_path: Path) -> None:
    orders = Orders(
        seed=7, seconds=3, faults=2, durability="fast", pods=1, senders=2, database=False, behind=1500, drain=60.0,
        only=("power cut",), paces=OFTEN,
    )  # fmt: skip

    outcome = run(orders, tmp_path)

    # If the workers keep up with the senders, a power cut takes no job but the outcomes of those that have run.
    assert outcome.verdict.lost or outcome.verdict.books, outcome.table


def judged(
    *events: tuple[float, int, int, int],
    deaths: dict[int, int] | None = None,
    silent: dict[int, Moments] | None = None,
) -> list[str]:
    judge = Judge(deaths or {}, silent or {}, lambda key, since, until: False, ())
    judge.look_at(1, [(int(at * 1e6), process, kind, number) for at, process, kind, number in events])
    return judge.faults


def test_order_is_judged_as_it_is_promised() -> None:
    quick = [(0, 1, BEGUN, 0), (1, 1, DONE, 0), (1.1, 1, BEGUN, 1), (1.2, 1, DONE, 1)]
    slow = [(0, 1, BEGUN, 0), (4, 1, DONE, 0), (4.1, 1, BEGUN, 1), (4.2, 1, DONE, 1)]
    again = [(900, 2, BEGUN, 0), (901, 2, DONE, 0), (901.1, 2, BEGUN, 1), (901.2, 2, DONE, 1)]

    assert judged(*quick) == []
    assert judged(*quick, *again, deaths={1: 2_000_000}) == [], (
        "they ended in the last moments of their process"
    )
    assert judged(*slow, *again, deaths={1: 5_000_000}) != [], (
        "a slow job is written down before the next begins"
    )
    assert judged(*quick, *again) != [], "their process lives"
    assert judged((0, 1, BEGUN, 0), (1, 1, FAILED, 0), (2, 1, BEGUN, 1)) != [], (
        "the one before has its retry yet"
    )
    assert judged((0, 1, BEGUN, 0), (1, 1, DEAD, 0), (2, 1, BEGUN, 1), (3, 1, DONE, 1)) == []
    assert judged((0, 1, BEGUN, 0), (1, 1, DONE, 0), (2, 1, BEGUN, 2)) != [], "one was left out"
    assert judged((0, 1, BEGUN, 0), (1, 2, BEGUN, 0), (2, 1, DONE, 0), (3, 2, DONE, 0)) != [], "both at once"


MINUTE = 60_000.0


def taken_for_dead(at: float) -> dict[int, Moments]:
    """The first process was, at that millisecond; it was heard a tenth of a second later."""
    return {1: [(int(at * 1e6), int((at + 100) * 1e6))]}


@pytest.mark.parametrize(
    ("at", "excused"),
    [
        (2_000, True),  # frozen after its first jobs: others took them over and ran them again
        (-5_000, True),  # before: it woke up, and began what was not its own any more
        (10 * MINUTE, False),  # long after the jobs had run again
        (-10 * MINUTE, False),  # long before: it had come back, and was a worker like any other
    ],
)
def test_a_worker_that_was_taken_for_dead_is_excused_for_that_time_only(at: float, excused: bool) -> None:
    first = [(0, 1, BEGUN, 0), (1, 1, DONE, 0), (1.1, 1, BEGUN, 1), (1.2, 1, DONE, 1)]
    again = [(3_000, 2, BEGUN, 0), (3_001, 2, DONE, 0), (3_001.1, 2, BEGUN, 1), (3_001.2, 2, DONE, 1)]

    assert (judged(*first, *again, silent=taken_for_dead(at)) == []) is excused


@pytest.mark.parametrize(("at", "excused"), [(2_000, True), (10 * MINUTE, False), (-10 * MINUTE, False)])
def test_two_at_once_are_excused_while_one_was_taken_for_dead(at: float, excused: bool) -> None:
    both = [(0, 1, BEGUN, 0), (3_000, 2, BEGUN, 0), (3_001, 2, DONE, 0), (3_002, 1, DONE, 0)]

    assert (judged(*both, silent=taken_for_dead(at)) == []) is excused


@pytest.mark.parametrize(("at", "excused"), [(2_000, True), (10 * MINUTE, False), (-10 * MINUTE, False)])
def test_a_zombie_is_excused_after_it_was_taken_for_dead(at: float, excused: bool) -> None:
    done = [(0, 2, BEGUN, 0), (1, 2, DONE, 0), (1.1, 2, BEGUN, 1), (1.2, 2, DONE, 1)]

    assert (
        judged(*done, (4_000, 1, BEGUN, 0), (4_001, 1, DONE, 0), silent=taken_for_dead(at)) == []
    ) is excused


def test_a_line_of_a_log_is_placed_between_the_lives_of_processes() -> None:
    log = """\
        worker h-1-a started, process 10
        worker h-1-a ended with signal 9
        worker h-2-b has fallen silent; 3 of its deliveries were taken back
        worker h-1-c started, process 12
        worker h-2-b is not in the registry; 0 of its deliveries were reclaimed
        worker h-9-d started, process 19
    """
    other = "worker h-2-b started, process 11"

    found = silences([log, other], deaths={10: 100, 12: 300}, signs={10: 1, 12: 250, 19: 400})

    assert found == {11: [(100, 250), (100, 400)]}


def test_who_listens_knows_it_more_exactly(tmp_path: Path) -> None:
    book, log = Book(tmp_path / "faults.words"), tmp_path / "pod-0.out"
    log.write_text("worker h-1-a started, process 10\nworker h-1-a has fal")
    ears = Ears(tmp_path, book)
    ears.listen()
    with log.open("a") as more:
        more.write("len silent; 0 of its deliveries were taken back\n")
    ears.listen()
    ears.listen()

    [word] = words = words_in(book.path)

    assert silences([log.read_text()], {}, {}, words) == {10: [(word["since"], word["until"])]}
